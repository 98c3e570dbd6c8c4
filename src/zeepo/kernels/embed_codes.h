// Rows of a table that is stored as codes, by index.
#pragma once

#include "zeepo/kernels/coded_weights.h"

namespace zeepo {

// y[i] = the values of the table's row ids[i], as expand_weights gives them.   ids: int32 (...), within the table   y:
// (..., n), n a multiple of kCodedRow
void embed_codes(CpuStream&, ConstView ids, CodedType type, const std::byte* table, View y);
void embed_codes(CudaStream&, ConstView ids, CodedType type, const std::byte* table, View y);
void embed_codes(DryStream&, ConstView ids, CodedType type, const std::byte* table, View y);

}  // namespace zeepo
