// mnist DIR [EPOCHS]: trains a small network on the digits of the four IDX files in DIR, and says how many of the test
// digits it recognises. Under mpirun each rank takes its part of every batch.
#include <charconv>
#include <cstdio>
#include <cstring>

#include "examples/mnist/cnn.h"
#include "examples/mnist/training.h"

namespace {

std::int64_t parse_epochs(const char* text) {
  std::int64_t epochs = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), epochs);
  if (error != std::errc() || *end != '\0' || epochs < 1)
    throw zeepo::UsageError("mnist: {} epochs: must be a number, at least 1", text);
  return epochs;
}

void run(zeepo::Runtime& runtime, const char* directory, mnist::TrainingOptions options) {
  const mnist::Digits training(directory, "train"), test(directory, "t10k");
  options.rank = runtime.rank();
  options.ranks = runtime.size();
  const bool speaks = runtime.rank() == 0;
  mnist::Cnn model;
  auto engine = zeepo::attach(model, mnist::engine_options());
  if (speaks)
    fmt::print("{} parameters, {} digits to learn from\n", parameter_count(engine->units()), training.count());
  mnist::train(*engine, model, training, options, [&](std::int64_t epoch, double loss) {
    if (!speaks) return;
    fmt::print("epoch {}  loss {:.4f}\n", epoch, loss);
    std::fflush(stdout);
  });
  engine->settle();
  const double right = mnist::accuracy(model, test);
  if (speaks) fmt::print("{:.2f}% of {} test digits recognised\n", 100 * right, test.count());
}

}  // namespace

int main(int argc, char** argv) {
  return zeepo::run_job({}, [&](zeepo::Runtime& runtime) {
    if (argc < 2 || argc > 3) throw zeepo::UsageError("usage: mnist DIR [EPOCHS]");
    mnist::TrainingOptions options;
    if (argc == 3) options.epochs = parse_epochs(argv[2]);
    run(runtime, argv[1], options);
  });
}
