// A device for one test: threads, a stream, memory with a budget, all in scope while it lives.
#pragma once

#include <vector>

#include "zeepo/base/rng.h"
#include "zeepo/memory/arena_tier.h"
#include "zeepo/tensor/device.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {

class TestDevice {
 public:
  explicit TestDevice(int threads = 2, std::size_t budget_bytes = std::size_t{1} << 30)
      : pool_(threads),
        stream_(pool_),
        memory_("device", budget_bytes, ArenaTier::Backing::memory),
        scope_(stream_, memory_) {}

  ArenaTier& memory() { return memory_; }
  CpuStream& stream() { return stream_; }

 private:
  ThreadPool pool_;
  CpuStream stream_;
  ArenaTier memory_;
  DeviceScope scope_;
};

// Normal values, the same for the same seed.
inline std::vector<float> random_floats(std::int64_t count, std::uint64_t seed, float deviation = 1) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = deviation * normal({seed}, i);
  return values;
}

inline Tensor random_tensor(Shape shape, std::uint64_t seed, float deviation = 1) {
  return Tensor::from<float>(random_floats(shape.elements(), seed, deviation), shape);
}

inline Tensor int_tensor(const std::vector<std::int32_t>& values, Shape shape) {
  return Tensor::from<std::int32_t>(values, shape);
}

}  // namespace zeepo
