#include "zeepo/zero/rank_talk.h"

#include <algorithm>

#include "zeepo/device/copy.h"
#include "zeepo/tensor/device.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {

void sum_over_ranks(Collectives& collectives, std::span<float> numbers) {
  const Tensor sum = Tensor::from<float>(numbers, {static_cast<std::int64_t>(numbers.size())});
  collectives.all_reduce(sum.view(), {"measurements", 0});
  std::ranges::copy(sum.to_floats(), numbers.begin());
  collectives.check();
}

void tell_all(Collectives& collectives, std::span<std::int32_t> numbers) {
  if (collectives.alone()) return;
  const Tensor told = Tensor::from<std::int32_t>(numbers, {static_cast<std::int64_t>(numbers.size())});
  collectives.broadcast(told.view(), 0, {"what the ranks do next", 0});
  launch([&](auto& s) { copy_to_host(s, told.view().data, numbers.data(), numbers.size_bytes()); });
  Device::current().compute.synchronize();
  collectives.check();
}

}  // namespace zeepo
