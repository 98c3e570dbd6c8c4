// Shares of the states that come to nothing are no fault: no file is made, and the bits are those of the resident run.
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/places.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_data.h"

namespace zeepo {
namespace {

// Of a run of two small steps with these options; empty when it failed.
std::string weights_hash(const std::vector<std::string>& options) {
  const auto model = golden("llama-tiny");
  std::vector<std::string> arguments{"train",
                                     "--model",
                                     model.string(),
                                     "--data",
                                     (model / "tokens.bin").string(),
                                     "--seq-len",
                                     "4",
                                     "--micro-batch",
                                     "1",
                                     "--steps",
                                     "2",
                                     "--memory",
                                     "device=64MiB,host=64MiB",
                                     "--threads",
                                     "1",
                                     "--log",
                                     "-"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const auto finished = run_program(kProgram, arguments);
  EXPECT_EQ(finished.code, 0) << finished.err;
  std::string hash;
  std::istringstream lines(finished.out);
  for (std::string line; std::getline(lines, line);) hash = nlohmann::json::parse(line).value("weights_hash", hash);
  return hash;
}

TEST(EmptyShares, TrainAsTheResidentRun) {
  const TestDirectory files;
  const std::string resident = weights_hash({});
  EXPECT_NE(resident, "");
  for (const std::vector<std::string>& shares : {std::vector<std::string>{"--offload-param", "nvme=0.01"},
                                                 {"--offload-param", "nvme=0.1"},
                                                 {"--offload-optimizer", "nvme=0.01"},
                                                 {"--offload-optimizer", "nvme=0.1"},
                                                 {"--offload-optimizer", "host=0.99,nvme=0.01"},
                                                 {"--offload-optimizer", "host=0.9,nvme=0.1"},
                                                 {"--offload-activations", "nvme"}}) {
    auto options = shares;
    options.insert(options.end(), {"--nvme-path", files.path().string()});
    EXPECT_EQ(weights_hash(options), resident) << shares[0] << " " << shares[1];
  }
}

}  // namespace
}  // namespace zeepo
