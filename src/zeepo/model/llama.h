// The Llama family: Llama 2 and 3, Mistral, Qwen 2 and 3. RMS norms, rotary positions, grouped-query attention, SwiGLU;
// they differ in biases, in Qwen 3's norms of queries and keys, and in attention windows.
#pragma once

#include "zeepo/model/language_model.h"

namespace zeepo {

class Embedding;

class Llama final : public LanguageModel {
 public:
  explicit Llama(const ModelConfig& config);

 private:
  class Block;
  class Embeddings;
  Tensor body(const Tensor& ids, const Past& past) override;
  Pass start_pass(const Tensor& ids, const Past& past);

  std::vector<float> frequencies_;
  // Of the last pass: every micro-step has the same.
  struct Rotations {
    std::vector<std::int32_t> positions;
    std::vector<float> cosines, sines;
  } rotations_;
  Embeddings* embeddings_;
  std::vector<Block*> blocks_;
};

}  // namespace zeepo
