// Weights and moments in host memory as fp32 numbers, whatever form they are kept in; on the calling thread.
#pragma once

#include <span>

#include "zeepo/kernels/moment_codes.h"

namespace zeepo {

// The exact fp32 weights from element `begin` on: of `param` and, where there is one, `remainder`
// (kernels/optimizer.h).
void load_weights(const View& param, const View& remainder, std::int64_t begin, std::span<float> to);
// Elements of the moment from `begin` on. The numbers of a narrow moment are bf16 numbers.
void load_moment(MomentOrder order, const Moment& from, std::int64_t begin, std::span<float> to);
// Rounds to the nearest; what load_moment() gave comes back exactly. The moment starts at a block's begin.
void store_moment(MomentOrder order, std::span<const float> from, const Moment& to);

}  // namespace zeepo
