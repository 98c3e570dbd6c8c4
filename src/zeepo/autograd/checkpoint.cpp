#include "zeepo/autograd/checkpoint.h"

#include <utility>

#include "zeepo/autograd/random_state.h"
#include "zeepo/autograd/tape.h"

namespace zeepo {

RandomState& RandomState::current() {
  thread_local RandomState state;
  return state;
}

Tensor checkpoint(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) {
  Tape* tape = Tape::current();
  if (!tape) return f(x);
  const RandomState before = RandomState::current();
  Tensor y;
  {
    const TapeScope none(nullptr);
    y = f(x);
  }
  // x may have no gradient (token ids): the parameters inside f still get theirs.
  tape->record({&y}, [f, x_saved = tape->save(x), dx = x.gradient(), before,
                      loss_scale = tape->loss_scale()](std::span<Tensor> dy) {
    const RandomState after = std::exchange(RandomState::current(), before);
    Tape inner(loss_scale);
    Tensor input = x_saved();
    if (dx) input.set_gradient(std::make_shared<Gradient>(input.shape(), input.dtype()));
    Tensor again;
    {
      const TapeScope scope(&inner);
      again = f(input);
    }
    RandomState::current() = after;
    inner.backward(again, dy[0]);
    if (dx && input.gradient()->written()) dx->add(input.gradient()->take());
  });
  return y;
}

}  // namespace zeepo
