// `zeepo generate` started by mpirun as one rank. Several: tests/train/mpi/generate_test.cpp.
#include <cstdlib>

#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_data.h"

namespace zeepo {
namespace {

// What Open MPI's mpirun tells a rank.
class LaunchedAs {
 public:
  LaunchedAs(int rank, int size) {
    ::setenv("OMPI_COMM_WORLD_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("OMPI_COMM_WORLD_SIZE", std::to_string(size).c_str(), 1);
  }
  ~LaunchedAs() {
    ::unsetenv("OMPI_COMM_WORLD_RANK");
    ::unsetenv("OMPI_COMM_WORLD_SIZE");
  }
};

Finished generate(int rank, int size) {
  const LaunchedAs launched(rank, size);
  return run_program(kProgram, {"generate", "--model", golden("gpt2-tiny").string(), "--ids", "1,2", "--max-new-tokens",
                                "3", "--memory", "device=64MiB", "--threads", "1"});
}

TEST(GenerateOnRanks, OneRankRuns) {
  const auto finished = generate(0, 1);
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_NE(finished.out, "");
}

}  // namespace
}  // namespace zeepo
