// mnist DIR [EPOCHS]: trains a small network on the digits of the four IDX files in DIR, and says how many of the test
// digits it recognises.
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

void run(const char* directory, const mnist::TrainingOptions& options) {
  const mnist::Digits training(directory, "train"), test(directory, "t10k");
  zeepo::Session session({});
  mnist::Cnn model;
  zeepo::ModelEngine engine(model, session.communicator(), mnist::engine_options());
  fmt::print("{} parameters, {} digits to learn from\n", parameter_count(engine.units()), training.count());
  mnist::train(engine, model, training, options, [](std::int64_t epoch, double loss) {
    fmt::print("epoch {}  loss {:.4f}\n", epoch, loss);
    std::fflush(stdout);
  });
  fmt::print("{:.2f}% of {} test digits recognised\n", 100 * mnist::accuracy(model, test), test.count());
  fmt::print("memory used: {}\n", zeepo::describe(session.memory().peak()));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2 || argc > 3) throw zeepo::UsageError("usage: mnist DIR [EPOCHS]");
    mnist::TrainingOptions options;
    if (argc == 3) options.epochs = parse_epochs(argv[2]);
    run(argv[1], options);
    return 0;
  } catch (const zeepo::UsageError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
