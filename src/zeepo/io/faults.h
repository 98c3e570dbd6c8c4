// What stands between an engine and the kernel in tests: it can make any single call fail, fall short or lie.
//
// Called from the engine's threads, several at a time.
#pragma once

#include "zeepo/io/engine.h"

namespace zeepo {

// One request to the kernel: a part of a transfer, or what is left of it.
struct IoCall {
  IoDirection direction = IoDirection::read;
  const IoFile* file = nullptr;
  std::int64_t offset = 0;
  std::span<std::byte> memory;
};

class IoFaults {
 public:
  virtual ~IoFaults() = default;
  // How many of the bytes the kernel is really asked for; at least 1.
  virtual std::size_t ask(const IoCall& call) = 0;
  // What the engine gets to see of the kernel's result: bytes, or the negative error number.
  virtual int answer(const IoCall& call, int result) = 0;
};

}  // namespace zeepo
