// `mpirun -n 3 zeepo train` with shares that come to nothing, on some ranks or on all: the bits of the resident run.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/mpirun.h"
#include "tests/support/places.h"
#include "tests/support/subprocess.h"

namespace zeepo {
namespace {

const auto kModel = std::filesystem::path(kTestData) / "golden" / "llama-tiny";

// Of two small steps with these options; empty when the job failed.
std::string weights_hash(const std::vector<std::string>& options) {
  std::vector<std::string> arguments{"-n",
                                     "3",
                                     kProgram,
                                     "train",
                                     "--model",
                                     kModel,
                                     "--data",
                                     kModel / "tokens.bin",
                                     "--seq-len",
                                     "4",
                                     "--micro-batch",
                                     "1",
                                     "--steps",
                                     "2",
                                     "--device",
                                     "cpu",
                                     "--memory",
                                     "device=64MiB,host=64MiB",
                                     "--threads",
                                     "1",
                                     "--stage",
                                     "3",
                                     "--log",
                                     "-"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const auto finished = run_program(kMpirun, arguments);
  EXPECT_EQ(finished.code, 0) << finished.err;
  std::string hash;
  std::istringstream lines(finished.out);
  for (std::string line; std::getline(lines, line);) hash = nlohmann::json::parse(line).value("weights_hash", hash);
  return hash;
}

TEST(MpiEmptyShares, TrainAsTheResidentRun) {
  const TestDirectory files;
  const std::string resident = weights_hash({});
  EXPECT_NE(resident, "");
  for (const std::vector<std::string>& shares : {std::vector<std::string>{"--offload-param", "nvme=0.1"},
                                                 {"--offload-optimizer", "host=0.9,nvme=0.1"},
                                                 {"--offload-activations", "nvme"}}) {
    auto options = shares;
    options.insert(options.end(), {"--nvme-path", files.path().string()});
    EXPECT_EQ(weights_hash(options), resident) << shares[0] << " " << shares[1];
  }
}

}  // namespace
}  // namespace zeepo
