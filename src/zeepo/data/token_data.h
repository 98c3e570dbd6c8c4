// --data FILE: whatever its kind, tokens to be read at any place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "zeepo/data/token_file.h"
#include "zeepo/data/tokenizer.h"

namespace zeepo {

// A .bin as it is; a .txt or .jsonl encoded by `tokenizer` into a temporary file, each document of a .jsonl followed by
// `eos` where there is one. Throws Error for another extension, or for text without a tokenizer.
TokenFile open_token_data(const std::filesystem::path& path, std::int64_t vocab_size, const Tokenizer* tokenizer,
                          std::optional<std::int32_t> eos);

}  // namespace zeepo
