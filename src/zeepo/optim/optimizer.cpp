#include "zeepo/optim/optimizer.h"

#include <cmath>

#include "zeepo/base/error.h"

namespace zeepo {

int state_count(const OptimizerOptions& options) {
  if (options.type == OptimizerType::sgd) return options.momentum == 0 ? 0 : 1;
  return 2;
}

void check(const OptimizerOptions& options) {
  if (options.type == OptimizerType::sgd && options.moments == MomentType::eight_bit)
    throw UsageError("train: --moments 8bit: sgd keeps its momentum in fp32 or bf16");
}

void step(Stream& stream, const OptimizerOptions& options, const StepPart& part, ConstView control, std::int64_t step,
          double lr) {
  const Chance chance{mix(mix(RngKey{options.seed}, "moments"), static_cast<std::uint64_t>(step)), part.first};
  if (options.type == OptimizerType::sgd) {
    const SgdOptions sgd_options{static_cast<float>(lr), options.momentum, part.weight_decay, step == 1};
    const View momentum = part.states.empty() ? View{} : part.states[0].values;
    compute_on(stream, [&](auto& s) { sgd(s, part.weights, part.grad, momentum, control, sgd_options, chance); });
    return;
  }
  const auto correction = [step](float beta) {
    return static_cast<float>(1 - std::pow(static_cast<double>(beta), static_cast<double>(step)));
  };
  const AdamOptions adam_options{.lr = static_cast<float>(lr),
                                 .beta1 = options.beta1,
                                 .beta2 = options.beta2,
                                 .eps = options.eps,
                                 .weight_decay = part.weight_decay,
                                 .correction1 = correction(options.beta1),
                                 .correction2 = correction(options.beta2),
                                 .decoupled = options.type == OptimizerType::adamw};
  compute_on(stream, [&](auto& s) {
    adam(s, part.weights, part.grad, part.states[0], part.states[1], control, adam_options, chance);
  });
}

}  // namespace zeepo
