// The "post_processor" of tokenizer.json: the special tokens that go around a text, such as <|begin_of_text|>.
#pragma once

#include <cstdint>
#include <vector>

namespace zeepo {

class JsonValue;

struct PostProcessor {
  std::vector<std::int32_t> before, after;

  // ByteLevel (which adds nothing), TemplateProcessing, or a Sequence of these; else throws Error naming it.
  static PostProcessor parse(const JsonValue& json);
};

}  // namespace zeepo
