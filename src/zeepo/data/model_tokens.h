// What a model directory says about its tokens beside tokenizer.json. Files that are not there say nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "zeepo/data/tokenizer.h"

namespace zeepo {

// config.json's vocab_size, else the tokenizer's.
std::int64_t vocabulary_size(const std::filesystem::path& model, const Tokenizer& tokenizer);
// The token that ends a text: the first eos_token_id of generation_config.json or config.json, else the eos_token of
// tokenizer_config.json.
std::optional<std::int32_t> end_token(const std::filesystem::path& model, const Tokenizer& tokenizer);

}  // namespace zeepo
