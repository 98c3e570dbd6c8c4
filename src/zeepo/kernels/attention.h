// Causal grouped-query attention in blocks: never a queries × keys matrix.
#pragma once

#include "zeepo/base/rng.h"
#include "zeepo/device/stream.h"
#include "zeepo/kernels/heads.h"

namespace zeepo {

struct AttentionOptions {
  float scale = 1;          // of the products q·k
  std::int64_t window = 0;  // query i sees key j when 0 <= i − j < window; 0: no window, only j <= i
  float dropout = 0;        // of the attention weights after softmax, as `dropout` does ...
  RngKey key = {};          // ... with element index ((b·heads + h)·queries + i)·keys + j
};

// out = softmax(scale · q kᵀ, masked) v.   q: (B, Tq, H, D)   k, v: (B, Tk, Hkv, D)   out: (B, Tq, H, D), H a multiple
// of Hkv; query head h uses key head h / (H/Hkv). Query 0 stands at position Tk − Tq. log_sums: fp32 (B, H, Tq), the
// log of each softmax's denominator (of scaled products), kept for the backward pass; may be empty. On a CPU the bits
// of a query depend on its position and what it sees: not on the queries and sequences beside it.
void attention(CpuStream&, ConstHeads q, ConstHeads k, ConstHeads v, Heads out, View log_sums, const AttentionOptions&);
void attention(CudaStream&, ConstHeads q, ConstHeads k, ConstHeads v, Heads out, View log_sums,
               const AttentionOptions&);
void attention(DryStream&, ConstHeads q, ConstHeads k, ConstHeads v, Heads out, View log_sums, const AttentionOptions&);

// Overwrites dq, dk and dv. Tq == Tk.
struct AttentionBackward {
  ConstHeads q, k, v, out, dout;
  ConstView log_sums;
  Heads dq, dk, dv;
};
void attention_backward(CpuStream&, const AttentionBackward&, const AttentionOptions&);
void attention_backward(CudaStream&, const AttentionBackward&, const AttentionOptions&);
void attention_backward(DryStream&, const AttentionBackward&, const AttentionOptions&);

}  // namespace zeepo
