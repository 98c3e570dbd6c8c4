// The "normalizer" of tokenizer.json: nothing, a Unicode normal form, or a Sequence of these.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeepo {

class JsonValue;

class Normalizer {
 public:
  Normalizer() = default;
  // Throws Error naming a normalizer that is not supported.
  static Normalizer parse(const JsonValue& json);

  // The normal form of `text` (valid UTF-8), or nothing where it is `text` itself.
  std::optional<std::string> normalize(std::string_view text) const;

 private:
  enum class Form { nfc, nfd, nfkc, nfkd };
  static std::string apply(Form form, std::string_view text);
  void add(const JsonValue& json);

  std::vector<Form> forms_;
};

}  // namespace zeepo
