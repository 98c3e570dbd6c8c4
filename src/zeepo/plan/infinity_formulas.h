// Memory and bandwidth of a transformer as the paper of ZeRO-Infinity counts them: Rajbhandari et al., "ZeRO-Infinity:
// Breaking the GPU Memory Wall for Extreme Scale Deep Learning", SC 2021, sections 3 and 4.
//
// Pure functions. Bytes are plain bytes: the paper's tables print TiB and GiB as TB and GB. All throw UsageError for a
// value below 1, for one that is not a number, and for results of 2^63 and more.
#pragma once

#include <cstdint>

namespace zeepo {

// Embedding and head are left out, as in the paper.
struct TransformerShape {
  std::int64_t layers = 0, hidden = 0, heads = 0;
};
// Throws UsageError naming the option; heads must divide the width.
void check(const TransformerShape& shape);

// What passes through the model together, on one GPU or on all of a node.
struct TokenBatchShape {
  std::int64_t samples = 1, seq_len = 1024;
};

// Section 3: 12 nl hd^2.
std::int64_t transformer_params(const TransformerShape& shape);
// 240 nl hd^2, 20 bytes a parameter.
std::int64_t model_state_bytes(const TransformerShape& shape);
// 2 bsz seq hd nl / ci, with ci blocks from one checkpoint to the next.
std::int64_t activation_checkpoint_bytes(const TransformerShape& shape, const TokenBatchShape& batch,
                                         std::int64_t interval);
// Figure 2a: nl bsz seq (16 hd + 2 heads seq): what all blocks keep without checkpoints.
std::int64_t activation_bytes(const TransformerShape& shape, const TokenBatchShape& batch);
// 4 hd 4hd, parameter and gradient of the largest operator in 16 bits.
std::int64_t model_state_working_bytes(std::int64_t hidden);
// bsz seq ci (16 hd + 2 heads seq): activations between two checkpoints.
std::int64_t activation_working_bytes(const TransformerShape& shape, const TokenBatchShape& batch,
                                      std::int64_t interval);

// Section 4: 2 4 bsz seq params: forward, recomputed and twice that backward. As a double: 63 bits do not hold it.
double work_per_iteration(std::int64_t params, const TokenBatchShape& batch);

// Arithmetic intensity: operations for each byte that is moved, with the batch of one GPU.
double intensity_of_params_and_grads(const TokenBatchShape& batch);                      // seq bsz
double intensity_of_optimizer_states(const TokenBatchShape& batch);                      // seq bsz / 4
double intensity_of_activation_checkpoints(std::int64_t hidden, std::int64_t interval);  // 24 hd ci

// The share of the peak that is reached where nothing overlaps: ait bw / (ait bw + peak).
double efficiency_at(double bytes_per_second, double intensity, double peak_flops);
// Its inverse: bytes a second for an efficiency from 0 to below 1.
double bandwidth_for(double efficiency, double intensity, double peak_flops);

}  // namespace zeepo
