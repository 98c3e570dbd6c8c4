// Where this rank stands in its calls: for errors, and for ranks that ask whether it has come as far as they have.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "zeepo/comm/call.h"

namespace zeepo {

class Position {
 public:
  void enter(const Call& call) {
    const std::lock_guard lock(mutex_);
    call_ = call;
    inside_ = true;
    ++entered_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    inside_ = false;
  }
  // Calls entered so far.
  std::int64_t entered() const {
    const std::lock_guard lock(mutex_);
    return entered_;
  }
  // `waited for all-gather of ...`, or `worked after all-gather of ...`
  std::string str() const {
    const std::lock_guard lock(mutex_);
    if (entered_ == 0) return "worked before its first call";
    return (inside_ ? "waited for " : "worked after ") + describe(call_);
  }

 private:
  mutable std::mutex mutex_;
  Call call_;
  bool inside_ = false;
  std::int64_t entered_ = 0;
};

}  // namespace zeepo
