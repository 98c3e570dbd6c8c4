// The "pre_tokenizer" of tokenizer.json: cuts text into the pieces that BPE encodes one by one.
//
// ByteLevel with its built-in expression (GPT-2), or a Sequence of Split and Digits that ends with ByteLevel (Llama 3,
// Qwen). Whatever the file calls them, they all are a row of steps: split by an expression, or put a space in front.
#pragma once

#include <functional>
#include <string_view>
#include <variant>
#include <vector>

#include "zeepo/data/regex.h"

namespace zeepo {

class JsonValue;

class PreTokenizer {
 public:
  using Sink = std::function<void(std::string_view piece)>;

  // Throws Error naming what is not supported.
  static PreTokenizer parse(const JsonValue& json);

  // Calls sink with each piece of `text` (valid UTF-8), in order; none is empty.
  void run(std::string_view text, RegexScratch& scratch, const Sink& sink) const { run_from(0, text, scratch, sink); }

 private:
  enum class Behavior { isolated, removed, contiguous, merged_with_previous, merged_with_next };
  struct Split {
    Regex regex;
    Behavior behavior;
    bool invert;
  };
  struct PrefixSpace {};

  void add(const JsonValue& json);
  void add_byte_level(const JsonValue& json);
  void run_from(std::size_t step, std::string_view text, RegexScratch& scratch, const Sink& sink) const;
  static void split(const Split& split, std::string_view text, RegexScratch& scratch, const Sink& sink);

  std::vector<std::variant<Split, PrefixSpace>> steps_;
  bool byte_level_ = false;
};

}  // namespace zeepo
