#include "zeepo/kernels/fp8.h"

#include <gtest/gtest.h>

#include "tests/kernels/kernel_checks.h"
#include "tests/support/errors.h"

namespace zeepo {
namespace {

TEST(Fp8, IsNotForCpus) {
  Threads cpu(1);
  EXPECT_TRUE(names(error_text([&] { quantise(cpu.stream, {}, Transpose::no, {}); }), "fp8", "GPU"));
  EXPECT_TRUE(names(error_text([&] { matmul_fp8(cpu.stream, {}, {}, {}, {}); }), "fp8", "GPU"));
}

}  // namespace
}  // namespace zeepo
