// The memory tables of ZeRO and ZeRO-Infinity, as they are printed.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace zeepo {

// ZeRO (2020), table 1, in decimal GB: what is printed is the value rounded, or cut off, at its last digit.
struct ZeroRow {
  std::int64_t ranks;
  std::array<double, 9> printed;  // stages 1, 2, 3 of each of kZeroModels
  std::array<double, 9> digit;    // the last one that is printed
};
inline constexpr std::array<std::int64_t, 3> kZeroModels{7'500'000'000, 128'000'000'000, 1'000'000'000'000};
inline const std::vector<ZeroRow>& zero_table() {
  static const std::vector<ZeroRow> rows{
      {1, {120, 120, 120, 2048, 2048, 2048, 16000, 16000, 16000}, {1, 1, 1, 1, 1, 1, 1, 1, 1}},
      {4, {52.5, 41.3, 30, 896, 704, 512, 7000, 5500, 4000}, {.1, .1, 1, 1, 1, 1, 1, 1, 1}},
      {16, {35.6, 21.6, 7.5, 608, 368, 128, 4750, 2875, 1000}, {.1, .1, .1, 1, 1, 1, 1, 1, 1}},
      {64, {31.4, 16.6, 1.88, 536, 284, 32, 4187, 2218, 250}, {.1, .1, .01, 1, 1, 1, 1, 1, 1}},
      {256, {30.4, 15.4, 0.47, 518, 263, 8, 4046, 2054, 62.5}, {.1, .1, .01, 1, 1, 1, 1, 1, .1}},
      {1024, {30.1, 15.1, 0.12, 513, 257, 2, 4011, 2013, 15.6}, {.1, .1, .01, 1, 1, 1, 1, 1, .1}}};
  return rows;
}
inline bool is_printed(double gigabytes, const ZeroRow& row, std::size_t cell) {
  return gigabytes > row.printed[cell] - row.digit[cell] / 2 - 1e-9 && gigabytes < row.printed[cell] + row.digit[cell];
}

// ZeRO-Infinity (2021), figure 2a: states, activations and checkpoints in TiB, working memory in GiB. Checkpoints:
// batch 32 a node. Activations: batch 4 a GPU, 16 GPUs a node. The paper prints 1.95 for the first model's working
// memory of states, against its own formula: 16 hd^2 is 1.5625.
struct InfinityRow {
  std::int64_t layers, hidden, heads;
  double trillions, states, activations, checkpoints, state_working, activation_working;
};
inline const std::vector<InfinityRow>& infinity_table() {
  static const std::vector<InfinityRow> rows{{80, 10 << 10, 128, 0.10, 1.83, 2.03, 0.05, 1.56, 1.63},
                                             {100, 20 << 10, 160, 0.50, 9.16, 3.91, 0.12, 6.25, 2.50},
                                             {128, 25 << 10, 256, 1.01, 18.31, 7.13, 0.20, 9.77, 3.56},
                                             {195, 64 << 10, 512, 10.05, 182.81, 24.38, 0.76, 64.00, 8.00},
                                             {315, 160 << 10, 1024, 101.47, 1845.70, 88.59, 3.08, 400.00, 18.00}};
  return rows;
}
// To two digits; a half may have been rounded either way.
inline constexpr double kInfinityDigit = 0.005 + 1e-9;

}  // namespace zeepo
