// Attention of a few queries to many keys, as in token generation: bound by reading keys and values, once each.
#pragma once

#include "zeepo/kernels/attention.h"

namespace zeepo::cpu {

// Whether the queries that share a key head are so few that products of vectors beat those of matrices.
inline bool few_queries(const ConstHeads& q, const ConstHeads& k, const AttentionOptions& options) {
  return q.rows * (q.heads / k.heads) <= 8 && options.dropout == 0;
}

// As attention, without dropout; parallel over key heads and pieces of the keys, cut by shape only.
void attention_decode(CpuStream&, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v, const Heads& out,
                      View log_sums, const AttentionOptions&);

}  // namespace zeepo::cpu
