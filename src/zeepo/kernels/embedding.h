// Rows of a table by index.
#pragma once

#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo {

// y[i] = table[ids[i]].   ids: int32 (...)   table: (vocab, n)   y: (..., n). Ids must be within the table; the caller
// has checked them where they entered the program. On a GPU -1 is row 0: a text goes on there before the host has seen
// that it has no next token.
void embed(CpuStream&, ConstView ids, ConstView table, View y);
void embed(CudaStream&, ConstView ids, ConstView table, View y);
void embed(DryStream&, ConstView ids, ConstView table, View y);
// dtable[ids[i]] += dy[i], summed in fp32 in the order of i; with overwrite, all other rows become zero. dtable is of
// dy's type, or fp32.
void embed_backward(CpuStream&, ConstView ids, ConstView dy, View dtable, Write write);
void embed_backward(CudaStream&, ConstView ids, ConstView dy, View dtable, Write write);
void embed_backward(DryStream&, ConstView ids, ConstView dy, View dtable, Write write);

}  // namespace zeepo
