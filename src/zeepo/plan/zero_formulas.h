// Memory and communication of the ZeRO stages as their paper counts them: Rajbhandari et al., "ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models", SC 2020, sections 3, 5 and 7.
//
// Pure functions. Bytes of a part are rounded up to a whole one. All throw UsageError for a stage that is not there,
// for fewer than one parameter or rank, for more ranks than parameters, and for results of 2^63 and more.
#pragma once

#include <cstdint>

namespace zeepo {

inline constexpr int kZeroStages = 4;

// Of one parameter in mixed-precision training with Adam.
struct BytesPerParam {
  std::int64_t params = 2, grads = 2, optimizer = 12;
  std::int64_t total() const { return params + grads + optimizer; }

  // 16: ZeRO, section 3.1: 16-bit parameter and gradient; fp32 parameter, momentum and variance. 20: ZeRO-Infinity,
  // section 3: an fp32 gradient too. Throws UsageError for anything else.
  static BytesPerParam of(std::int64_t total);
};

// What one rank keeps: the largest share where they are not equal.
struct StateBytes {
  std::int64_t params = 0, grads = 0, optimizer = 0;
  std::int64_t total = 0;  // rounded once: at most 2 less than the sum of the three
};

// Section 5. Stage 0 shards nothing, 1 the optimizer's state, 2 gradients as well, 3 parameters as well:
// 16P, 4P + 12P/N, 2P + 14P/N, 16P/N.
StateBytes state_bytes(int stage, std::int64_t params, std::int64_t ranks, const BytesPerParam& bytes = {});

// Section 7: elements that a rank sends (and receives) a step: 2P, 2P, 2P, 3P. The paper's limit of many ranks.
std::int64_t comm_elements(int stage, std::int64_t params);

// A parameter vector cut into shares that differ by one element at most: 1000 over 4 ranks is 250 each.
std::int64_t plain_share(std::int64_t params, std::int64_t ranks, std::int64_t rank);

}  // namespace zeepo
