// The sizes that a model may have, whether a config.json gives its shape or the command line does.
#pragma once

#include <cstdint>
#include <string>

#include "zeepo/model/config.h"

namespace zeepo {

// More than any model has, and so few that the product of any two fits 63 bits; check() bounds the whole.
inline constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;  // hidden, intermediate, heads, head_dim
// Known models have hundreds. Each layer is planned for, before any budget can refuse it: a wrong config.json may cost
// the seconds and the half gigabyte that this many take (bench/RESULTS.md, many layers), not more.
inline constexpr std::int64_t kMaxLayers = std::int64_t{1} << 13;
inline constexpr std::int64_t kMaxVocab = std::int64_t{1} << 30;
inline constexpr std::int64_t kMaxPositions = std::int64_t{1} << 30;

// How errors call them: keys of a file, or options of a command.
struct SizeNames {
  const char *layers, *hidden, *heads, *vocab, *positions;
};
// Throws Error, which begins with `what`, for sizes past these, and for more parameters than can be counted in bytes.
void check(const ModelConfig& config, const std::string& what, const SizeNames& names);

}  // namespace zeepo
