#include "zeepo/ops/join.h"

#include <memory>

#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

Tensor join(const std::vector<Tensor>& parts) {
  std::int64_t elements = 0;
  for (const Tensor& part : parts) {
    if (part.dtype() != parts.front().dtype())
      throw Error("join: parts of {} and {}", name_of(parts.front().dtype()), name_of(part.dtype()));
    elements += part.elements();
  }
  if (elements == 0) throw Error("join: nothing to join");
  Tensor y({elements}, parts.front().dtype());
  struct Wanted {
    std::shared_ptr<Gradient> gradient;
    std::int64_t begin, elements;
  };
  std::vector<Wanted> wanted;
  std::int64_t at = 0;
  for (const Tensor& part : parts) {
    const View to = y.part(at, {part.elements()}).view();
    launch([&](auto& s) { copy(s, part.view(), to); });
    if (auto gradient = wanted_gradient(part)) wanted.push_back({std::move(gradient), at, part.elements()});
    at += part.elements();
  }
  if (Tape* tape = wanted.empty() ? nullptr : Tape::current())
    tape->record({&y}, [wanted](std::span<Tensor> dy) {
      for (const Wanted& part : wanted) part.gradient->add(dy[0].part(part.begin, {part.elements}));
    });
  return y;
}

}  // namespace zeepo
