// `--batch-file FILE`: JSON lines, each a prompt with "prompt" or "ids", and optionally "max_new_tokens".
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "zeepo/data/tokenizer.h"
#include "zeepo/model/config.h"

namespace zeepo::cli {

struct BatchPrompt {
  std::vector<std::int32_t> ids;
  std::int64_t max_new_tokens = 0;
};

// In the order of the file; empty lines are passed over. The file is not trusted: every fault is an Error with file and
// line. Keys that are not acted on are named once on stderr. `tokenizer` may be null: "prompt" is then an error.
std::vector<BatchPrompt> read_batch_file(const std::filesystem::path& path, const Tokenizer* tokenizer,
                                         const ModelConfig& config, std::int64_t max_new_tokens, bool speaks);

}  // namespace zeepo::cli
