// A compiled regular expression over UTF-8, found match by match.
//
// A Regex is read-only and may be shared by threads; each thread matches with its own RegexScratch.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace zeepo {

class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(RegexScratch&&) noexcept;
  RegexScratch& operator=(RegexScratch&&) = delete;

 private:
  friend class RegexMatches;
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

class Regex {
 public:
  // PCRE2 syntax; see to_pcre2_syntax. Throws Error with the expression and what is wrong with it.
  explicit Regex(std::string_view expression);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) = delete;

 private:
  friend class RegexMatches;
  struct Code;
  std::unique_ptr<Code> code_;
};

struct TextRange {
  std::size_t begin, end;
};

// The matches of one expression in one text, left to right. Borrows all three; several may be under way over one
// scratch. An empty match is found only where the previous one did not end.
class RegexMatches {
 public:
  RegexMatches(const Regex& regex, RegexScratch& scratch, std::string_view text);
  // Throws Error when the expression needs more steps or memory than any tokenizer does.
  std::optional<TextRange> next();

 private:
  const Regex& regex_;
  RegexScratch& scratch_;
  std::optional<std::string> stand_in_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::optional<std::size_t> last_end_;
};

}  // namespace zeepo
