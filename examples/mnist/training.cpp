#include "examples/mnist/training.h"

#include <algorithm>

namespace mnist {

EngineOptions engine_options() {
  return {.optimizer = {.type = OptimizerType::sgd, .momentum = 0.9f, .weight_decay = 0}, .clip = 0};
}

void train(ModelEngine& engine, Module& model, const Digits& digits, const TrainingOptions& options,
           const std::function<void(std::int64_t epoch, double loss)>& after_epoch) {
  engine.load(random_weights(options.seed));
  const std::int64_t batch_size = std::min(options.batch, digits.count()), steps = digits.count() / batch_size;
  if (batch_size % options.ranks != 0)
    throw Error("mnist: {} ranks cannot share a batch of {} evenly", options.ranks, batch_size);
  std::int64_t visit = 0;
  for (std::int64_t epoch = 1; epoch <= options.epochs; ++epoch) {
    double loss = 0;
    for (std::int64_t step = 0; step < steps; ++step) {
      std::vector<std::int64_t> indices;
      for (std::int64_t row = 0; row < batch_size; ++row, ++visit)
        if (row % options.ranks == options.rank)
          indices.push_back(sample_index(visit, digits.count(), Order::shuffled, options.seed));
      const auto [images, labels] = digits.batch(indices);
      engine.micro_step([&model, &x = images, &y = labels] { return cross_entropy(model(x), y); });
      loss += engine.step(options.lr).loss;
    }
    after_epoch(epoch, loss / static_cast<double>(steps));
  }
}

double accuracy(Module& model, const Digits& digits) {
  constexpr std::int64_t kAtATime = 256;
  std::int64_t right = 0;
  for (std::int64_t begin = 0; begin < digits.count(); begin += kAtATime) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = begin; i < std::min(begin + kAtATime, digits.count()); ++i) indices.push_back(i);
    const Tensor logits = model(digits.batch(indices).images);  // (N, 10)
    const auto values = logits.to_floats();
    for (std::size_t row = 0; row < indices.size(); ++row) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(row) * 10;
      right += std::max_element(first, first + 10) - first == digits.label(indices[row]);
    }
  }
  return static_cast<double>(right) / static_cast<double>(digits.count());
}

}  // namespace mnist
