// Directories that have nothing but a config.json: the shapes of Qwen2.5.
#pragma once

#include <nlohmann/json.hpp>

#include "tests/support/test_directory.h"

namespace zeepo {

struct QwenShape {
  int hidden, intermediate, layers, heads, kv_heads, vocab;
  bool tied;
};
inline constexpr QwenShape k3B{2048, 11008, 36, 16, 2, 151936, true};
inline constexpr QwenShape k7B{3584, 18944, 28, 28, 4, 152064, false};
inline constexpr QwenShape k14B{5120, 13824, 48, 40, 8, 152064, false};

inline void write_qwen_config(const TestDirectory& directory, const QwenShape& shape) {
  const nlohmann::json config = {{"model_type", "qwen2"},
                                 {"architectures", {"Qwen2ForCausalLM"}},
                                 {"hidden_size", shape.hidden},
                                 {"intermediate_size", shape.intermediate},
                                 {"num_hidden_layers", shape.layers},
                                 {"num_attention_heads", shape.heads},
                                 {"num_key_value_heads", shape.kv_heads},
                                 {"vocab_size", shape.vocab},
                                 {"tie_word_embeddings", shape.tied},
                                 {"hidden_act", "silu"},
                                 {"max_position_embeddings", 32768},
                                 {"rms_norm_eps", 1e-6},
                                 {"rope_theta", 1e6},
                                 {"use_sliding_window", false}};
  directory.write("config.json", config.dump());
}

}  // namespace zeepo
