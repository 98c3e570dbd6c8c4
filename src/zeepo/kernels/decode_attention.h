// Attention of one new position of each sequence to all before it, whose keys and values are cached: the rotation of
// its query and key, its place in the cache and the attention itself in one kernel, cut along the keys.
#pragma once

#include "zeepo/kernels/attention.h"

namespace zeepo {

struct DecodeAttention {
  ConstHeads q = {}, k = {}, v = {};   // (B, 1, heads, D): of the new positions
  ConstView cosines = {}, sines = {};  // fp32 (1, D/2): q and k are rotated by them; empty: they are as they shall be
  Heads keys = {}, values = {};        // (B, T, Hkv, D): caches with room for the new position, their last row
  Heads out = {};                      // (B, 1, H, D)
  AttentionOptions options = {};       // without dropout
};

// Whether the backend has a kernel for these types, sizes and addresses. What it gives depends on a sequence's length
// and values: not on what else is in the batch.
bool takes(CpuStream&, const DecodeAttention& op);
bool takes(CudaStream& stream, const DecodeAttention& op);
bool takes(DryStream&, const DecodeAttention& op);
// Only what it takes. Values are rounded where rotate() and attention() round them.
void attend(CpuStream&, const DecodeAttention& op);
void attend(CudaStream& stream, const DecodeAttention& op);
void attend(DryStream&, const DecodeAttention& op);

}  // namespace zeepo
