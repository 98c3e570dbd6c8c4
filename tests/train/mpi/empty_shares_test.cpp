// `mpirun -n 3 zeepo train` with shares that come to nothing, on some ranks or on all: the bits of the resident run.
#include "tests/support/empty_shares.h"
#include "tests/support/mpirun.h"

namespace zeepo {
namespace {

TEST(MpiEmptyShares, TrainAsTheResidentRun) {
  expect_resident_bits({kMpirun, "-n", "3"}, {"--stage", "3"},
                       {{"--offload-param", "nvme=0.1"},
                        {"--offload-optimizer", "host=0.9,nvme=0.1"},
                        {"--offload-activations", "nvme"}});
}

}  // namespace
}  // namespace zeepo
