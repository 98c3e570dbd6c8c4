// The first of several failures, where each part of some work is to be done whether or not others have failed.
#pragma once

#include <exception>

namespace zeepo {

class FirstFailure {
 public:
  template <class F>
  void outlast(F&& part) noexcept {
    try {
      part();
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
  }
  // Throws it, if there was one.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::exception_ptr failure_;
};

}  // namespace zeepo
