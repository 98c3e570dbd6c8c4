// The product of few rows with a weight, and what a transformer's block does before and after it, in one kernel.
//
// With one row for each text that is generated, a GPU reads the weight once and does little with it: time is what the
// memory takes, and each kernel more costs as much as a small weight. A row of the result has the same bits whatever
// rows are beside it. Values are rounded where the single operations round them.
#pragma once

#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"
#include "zeepo/kernels/coded_weights.h"

namespace zeepo {

inline constexpr std::int64_t kFewRows = 8;

// y = x weightᵀ + bias, where given: of x after its RMS norm; the swiglu of the result; added to `sum`.
struct FewRowProduct {
  ConstView x = {};                   // (m, k), m <= kFewRows
  ConstView weight = {};              // (n, k), or with swiglu (2·n, k); without data where it is coded
  const std::byte* codes = nullptr;   // the weight's rows of codes, instead
  CodedType coded = CodedType::same;  // how
  ConstView bias = {};                // (n) or (2·n)
  ConstView norm = {};                // (k)
  float eps = 0;                      // of the norm
  bool swiglu = false;                // the first n columns are gates
  ConstView sum = {};                 // (m, n)
  View y = {};                        // (m, n)
};

// Whether the backend has a kernel for these types, sizes and addresses.
bool takes(CpuStream&, const FewRowProduct& op);
bool takes(CudaStream& stream, const FewRowProduct& op);
bool takes(DryStream&, const FewRowProduct& op);
// Only what it takes.
void multiply(CpuStream&, const FewRowProduct& op);
void multiply(CudaStream& stream, const FewRowProduct& op);
void multiply(DryStream&, const FewRowProduct& op);

}  // namespace zeepo
