// Shares of the states that come to nothing are no fault: no file is made, and the bits are those of the resident run.
#include "tests/support/empty_shares.h"

namespace zeepo {
namespace {

TEST(EmptyShares, TrainAsTheResidentRun) {
  expect_resident_bits({}, {},
                       {{"--offload-param", "nvme=0.01"},
                        {"--offload-param", "nvme=0.1"},
                        {"--offload-optimizer", "nvme=0.01"},
                        {"--offload-optimizer", "nvme=0.1"},
                        {"--offload-optimizer", "host=0.99,nvme=0.01"},
                        {"--offload-optimizer", "host=0.9,nvme=0.1"},
                        {"--offload-activations", "nvme"}});
}

}  // namespace
}  // namespace zeepo
