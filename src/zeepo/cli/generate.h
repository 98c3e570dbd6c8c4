// What the forms of `zeepo generate` share: one prompt (generate.cpp), or a file of them (generate_batch.cpp).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "zeepo/data/tokenizer.h"
#include "zeepo/infer/batch_step.h"
#include "zeepo/infer/generator.h"
#include "zeepo/infer/inference.h"

namespace zeepo::cli {

inline constexpr std::int64_t kMostSequences = 4096, kLargestChunk = 1 << 20;

struct GenerateRequest {
  std::optional<std::string> prompt;
  std::string ids;
  std::filesystem::path batch_file, logits, trace;
  GenerateOptions generate;
  std::int64_t max_batch = 32;
  std::optional<std::int64_t> prefill_chunk;
  // Of texts in pages; one prompt in one piece takes its GenerateOptions' own.
  std::int64_t chunk_of_pages() const { return prefill_chunk.value_or(BatchLimits{}.prefill_tokens); }
  bool ignore_eos = false, json = false;
};

// The model's tokenizer, if it has one.
std::optional<Tokenizer> find_tokenizer(const std::filesystem::path& model);
// Where ids will do: one that zeepo cannot use is told of on the rank that speaks, and is none.
std::optional<Tokenizer> find_usable_tokenizer(const std::filesystem::path& model, bool speaks);

// The object of a prompt, without its text. The passes of `result` are those that it took part in.
struct Timing {
  double first_token = 0;                    // seconds from the start of the program's work
  double prefill = 0, decode_per_token = 0;  // seconds
};
nlohmann::ordered_json result_json(const std::vector<std::int32_t>& ids, std::size_t prompt_tokens,
                                   const Timing& timing);

// A collective.
nlohmann::ordered_json generation_summary(Inference& inference, const Generation& passes);

// With --batch-file.
void run_batch(const InferenceOptions& where, const GenerateRequest& request, Communicator& communicator);

}  // namespace zeepo::cli
