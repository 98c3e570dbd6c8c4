// Values kept from the forward for the backward pass. All of them go through one SaveHook, which decides where they
// wait.
#pragma once

#include <functional>

#include "zeepo/tensor/tensor.h"

namespace zeepo {

// Gives the value back. Called at most a few times, in the backward pass; the value is let go with the Saved.
using Saved = std::function<Tensor()>;

class SaveHook {
 public:
  virtual ~SaveHook() = default;
  virtual Saved save(const Tensor& value) = 0;

  // The hook in force on this thread; by default values stay where they are.
  static SaveHook& current();
};

class SaveHookScope {
 public:
  explicit SaveHookScope(SaveHook& hook);
  ~SaveHookScope();
  SaveHookScope(const SaveHookScope&) = delete;
  SaveHookScope& operator=(const SaveHookScope&) = delete;

 private:
  SaveHook* outer_;
};

}  // namespace zeepo
