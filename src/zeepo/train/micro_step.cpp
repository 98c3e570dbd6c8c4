#include "zeepo/train/micro_step.h"

#include "zeepo/autograd/random_state.h"

namespace zeepo {

void run_micro_step(ModelEngine& engine, const RunSetup& setup, std::int64_t step, std::int64_t number,
                    const std::function<TokenBatch()>& batch) {
  const auto dropout_key = mix(mix(RngKey{setup.options.seed}, "dropout"), static_cast<std::uint64_t>(step));
  const auto draw = static_cast<std::uint64_t>(number * setup.ranks.ranks + setup.ranks.rank);
  RandomState::current() = {.key = mix(dropout_key, draw), .training = true};
  engine.micro_step([&] {
    const TokenBatch tokens = batch();
    return setup.model->loss(tokens.ids, tokens.targets, tokens.divisor);
  });
  RandomState::current() = {};
}

float run_eval_pass(ModelEngine& engine, const RunSetup& setup, const std::function<TokenBatch()>& batch) {
  float loss = 0;
  engine.infer([&] {
    const TokenBatch tokens = batch();
    loss = setup.model->loss(tokens.ids, tokens.targets, 1.0f).to_floats()[0];
  });
  return loss;
}

}  // namespace zeepo
