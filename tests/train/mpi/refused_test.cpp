// `mpirun -n 3 zeepo train`, and one rank is refused a thread: every rank ends in seconds, and the job says why.
#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/mpirun.h"
#include "tests/support/places.h"
#include "tests/support/running_program.h"

namespace zeepo {
namespace {

const auto kModel = std::filesystem::path(kTestData) / "golden" / "llama-tiny";

// Each rank has told its process id first. fault_shim.c refuses rank 1 threads, `which` of them.
std::vector<std::string> job(const std::string& which, const std::filesystem::path& directory) {
  const std::string train = std::string(kProgram) + " train --model " + kModel.string() + " --data " +
                            (kModel / "tokens.bin").string() +
                            " --seq-len 16 --steps 2 --device cpu --threads 6 --memory device=64MiB --stage 3";
  return {"-n", "3", "sh", "-c",
          "echo $$ > " + (directory / "rank").string() + "$OMPI_COMM_WORLD_RANK; exec env LD_PRELOAD=" +
              std::string(kFaultShim) + " ZEEPO_FAULT_RANK=1 ZEEPO_FAULT_REPORT=" + (directory / "report").string() +
              " 'ZEEPO_FAULTS=pthread_create:" + which + "' " + train};
}

TEST(MpiRefused, AThreadOfOneRankEndsTheJob) {
  for (const std::string which : {"1+", "4"}) {
    const TestDirectory directory;
    RunningProgram mpirun(kMpirun, job(which + ":11", directory.path()));  // EAGAIN
    const Finished finished = mpirun.wait();
    EXPECT_GT(finished.code, 0) << which;
    EXPECT_TRUE(names(finished.err, "rank 1: cannot start a thread for", "ulimit -u")) << which;
    EXPECT_TRUE(std::filesystem::exists(directory.path() / "report.1.fired")) << which;
    for (const char* rank : {"rank0", "rank1", "rank2"}) {
      const pid_t process = std::stoi(whole_file(directory.path() / rank));
      EXPECT_TRUE(becomes_true([&] { return ::kill(process, 0) != 0; })) << rank << ", " << which;
    }
  }
}

}  // namespace
}  // namespace zeepo
