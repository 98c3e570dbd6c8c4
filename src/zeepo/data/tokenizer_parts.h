// What a tokenizer.json says, each part ready for use. Private to the tokenizer's own files.
#pragma once

#include <string>
#include <string_view>

#include "zeepo/data/added_tokens.h"
#include "zeepo/data/bpe.h"
#include "zeepo/data/normalizer.h"
#include "zeepo/data/post_processor.h"
#include "zeepo/data/pre_tokenizer.h"
#include "zeepo/data/tokenizer.h"

namespace zeepo {

struct Tokenizer::Parts {
  // Throws Error.
  static std::unique_ptr<const Parts> parse(std::string_view json, const std::string& name);
  // Appends the bytes that `id` stands for.
  void append_bytes(std::int32_t id, Special special, std::string& out) const;

  std::string name;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  AddedTokens added;
  PostProcessor post_processor;
  bool has_decoder;
};

}  // namespace zeepo
