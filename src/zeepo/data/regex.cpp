#include "zeepo/data/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "zeepo/base/error.h"
#include "zeepo/data/stand_ins.h"
#include "zeepo/data/utf8.h"

namespace zeepo {
namespace {

constexpr std::uint32_t kMatchLimit = 10'000'000;
constexpr std::uint32_t kHeapLimitKib = 256 * 1024;
constexpr std::size_t kJitStackBytes = std::size_t{8} << 20;
constexpr std::size_t kLongestExpression = 64 * 1024;

template <class Handle, auto destroy>
struct Destroy {
  void operator()(Handle* handle) const noexcept { destroy(handle); }
};
template <class Handle, auto destroy>
using Owned = std::unique_ptr<Handle, Destroy<Handle, destroy>>;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

template <class T>
T* made(T* handle) {
  if (handle == nullptr) throw std::bad_alloc();
  return handle;
}

}  // namespace

struct RegexScratch::Buffers {
  Owned<pcre2_match_data, pcre2_match_data_free> match{made(pcre2_match_data_create(1, nullptr))};
  Owned<pcre2_match_context, pcre2_match_context_free> context{made(pcre2_match_context_create(nullptr))};
  // Null where the machine forbids generated code; expressions are interpreted there.
  Owned<pcre2_jit_stack, pcre2_jit_stack_free> stack{pcre2_jit_stack_create(64 * 1024, kJitStackBytes, nullptr)};
};

RegexScratch::RegexScratch() : buffers_(std::make_unique<Buffers>()) {
  pcre2_set_match_limit(buffers_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(buffers_->context.get(), kHeapLimitKib);
  if (buffers_->stack) pcre2_jit_stack_assign(buffers_->context.get(), nullptr, buffers_->stack.get());
}
RegexScratch::~RegexScratch() = default;
RegexScratch::RegexScratch(RegexScratch&&) noexcept = default;

struct Regex::Code {
  Owned<pcre2_code, pcre2_code_free> handle;
  std::string expression;
};

Regex::Regex(std::string_view expression) : code_(std::make_unique<Code>()) {
  code_->expression = expression;
  if (expression.size() > kLongestExpression)
    throw Error("regular expression of {} bytes: at most {} are supported", expression.size(), kLongestExpression);
  int error = 0;
  std::size_t offset = 0;
  const Owned<pcre2_compile_context, pcre2_compile_context_free> context(made(pcre2_compile_context_create(nullptr)));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  // As in Ruby, ^ and $ are the ends of lines.
  code_->handle.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                    context.get()));
  if (!code_->handle) throw Error("regular expression {:?}: {} at offset {}", expression, message_of(error), offset);
  pcre2_jit_compile(code_->handle.get(), PCRE2_JIT_COMPLETE);  // where it fails, the expression is interpreted
}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

RegexMatches::RegexMatches(const Regex& regex, RegexScratch& scratch, std::string_view text)
    : regex_(regex), scratch_(scratch), stand_in_(with_stand_ins(text)), text_(text) {}

std::optional<TextRange> RegexMatches::next() {
  const std::string_view subject = stand_in_ ? std::string_view(*stand_in_) : text_;
  auto& buffers = *scratch_.buffers_;
  while (at_ <= subject.size()) {
    const auto match = [&](std::uint32_t options) {
      return pcre2_match(regex_.code_->handle.get(), reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), at_,
                         options, buffers.match.get(), buffers.context.get());
    };
    int found = match(PCRE2_NO_UTF_CHECK);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (found < 0)
      throw Error("regular expression {:?}: {} in a text of {} bytes, at offset {}", regex_.code_->expression,
                  message_of(found), text_.size(), at_);
    const std::size_t* ends = pcre2_get_ovector_pointer(buffers.match.get());
    // \K in a lookahead is the only way to a match that ends before it begins, and it is never let in.
    const TextRange range{ends[0], std::max(ends[0], ends[1])};
    if (range.begin == range.end && last_end_ == range.end) {
      at_ += at_ < subject.size() ? code_point_at(subject, at_).bytes : 1;
      continue;
    }
    at_ = range.end;
    last_end_ = range.end;
    return range;
  }
  return std::nullopt;
}

}  // namespace zeepo
