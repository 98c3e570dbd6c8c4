// Runs the tests of the CUDA backend, or says that there is no GPU and ends with 77, which CTest counts as skipped.
#include <gtest/gtest.h>

#include <cstdio>

#include "zeepo/device/cuda/cuda_stream.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (zeepo::cuda_devices() == 0 && !testing::GTEST_FLAG(list_tests)) {
    std::puts("no GPU that CUDA can use: the tests of the CUDA backend are skipped");
    return 77;
  }
  return RUN_ALL_TESTS();
}
