// Products with so few rows of `a` that reading `b` once is all the time they take: token generation.
#pragma once

#include "zeepo/device/stream.h"
#include "zeepo/kernels/cpu/few_rows.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo::cpu {

// As matmul, bit by bit, for a: (m, k) not transposed with m <= kFewRows. 16-bit weights are widened in registers.
// `piece` is how much of k one chain goes over.
void matmul_few_rows(CpuStream& stream, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t piece, ConstView a,
                     ConstView b, View c, const MatmulOptions& options);

}  // namespace zeepo::cpu
