// Attention of a few queries to many keys, as in token generation: bound by reading keys and values, once each.
#pragma once

#include "zeepo/kernels/attention.h"
#include "zeepo/kernels/cpu/few_rows.h"
#include "zeepo/kernels/cpu/gemm.h"

namespace zeepo::cpu {

// Whether the queries that share a key head are so few that reading keys and values is all the time they take.
inline bool few_queries(const ConstHeads& q, const ConstHeads& k, const AttentionOptions& options) {
  return q.rows * (q.heads / k.heads) <= kFewRows && q.head_dim <= kGemmDepth && options.dropout == 0;
}

// As attention, bit by bit, without dropout; parallel over key heads and blocks of keys.
void attention_decode(CpuStream&, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v, const Heads& out,
                      View log_sums, const AttentionOptions&);

}  // namespace zeepo::cpu
