// How much a template may do: steps, bytes made, and calls inside of calls. Templates come from strangers; a loop
// without end or text that doubles is a Fault, before the memory is taken.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "zeepo/chat/value.h"

namespace zeepo::jinja {

class Budget {
 public:
  static constexpr std::int64_t kSteps = 2'000'000;
  static constexpr std::int64_t kBytes = std::int64_t{256} << 20;
  static constexpr int kDepth = 400;
  static constexpr std::int64_t kLongestRange = 100'000;  // as in Jinja's sandbox

  void step(std::size_t count = 1) {
    steps_ += static_cast<std::int64_t>(count);
    if (steps_ > kSteps) throw Fault("the template takes more than " + std::to_string(kSteps) + " steps");
  }
  // To be called before they are taken.
  void bytes(std::size_t count) {
    // No sum of two overflows: each is refused beyond the limit.
    if (count > static_cast<std::size_t>(kBytes - bytes_))
      throw Fault("the template makes more than " + std::to_string(kBytes >> 20) + " MiB of text and lists");
    bytes_ += static_cast<std::int64_t>(count);
  }
  void enter() {
    if (++depth_ > kDepth) throw Fault("expressions, blocks and macros inside of one another, too deep");
    step();
  }
  void leave() { --depth_; }

 private:
  std::int64_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
};

class DepthScope {
 public:
  explicit DepthScope(Budget& budget) : budget_(budget) {
    try {
      budget_.enter();
    } catch (...) {
      budget_.leave();
      throw;
    }
  }
  ~DepthScope() { budget_.leave(); }
  DepthScope(const DepthScope&) = delete;
  DepthScope& operator=(const DepthScope&) = delete;

 private:
  Budget& budget_;
};

// Text that grows within the budget.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(budget) {}

  void append(std::string_view text) {
    budget_.bytes(text.size());
    text_ += text;
  }
  void append(char c) { append(std::string_view(&c, 1)); }
  Budget& budget() { return budget_; }
  std::string take() { return std::move(text_); }

 private:
  Budget& budget_;
  std::string text_;
};

}  // namespace zeepo::jinja
