// A test program that mpirun starts: an exception on one rank ends the job, since the others would wait for it.
#include <gtest/gtest.h>

#include "tests/comm/mpi/job.h"

namespace zeepo {
namespace {

std::unique_ptr<Communicator> communicator;

}  // namespace

Communicator& job() { return *communicator; }

}  // namespace zeepo

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  GTEST_FLAG_SET(catch_exceptions, false);
  zeepo::communicator = zeepo::make_communicator(zeepo::detect_launch());
  try {
    const int result = RUN_ALL_TESTS();
    zeepo::job().finish();
    return result;
  } catch (const std::exception& error) {
    zeepo::job().abort_job(error.what());
  }
}
