// Rotary position embedding as config.json describes it, and the frequencies that follow.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace zeepo {

struct RopeConfig {
  enum class Scaling { none, linear, llama3 };

  Scaling scaling = Scaling::none;
  double theta = 10000.0;
  double factor = 1.0;                                   // linear, llama3
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  std::int64_t original_max_positions = 0;               // llama3
};

// From `rope_parameters`, or `rope_theta` and `rope_scaling` at the top level of an older file. Throws Error for a kind
// of scaling that zeepo does not have.
RopeConfig parse_rope(const nlohmann::json& config, std::int64_t max_positions, const std::string& what);

// head_dim / 2 of them, rounded at each step as transformers' fp32 tensors are. head_dim must be even.
std::vector<float> inverse_frequencies(const RopeConfig& rope, std::int64_t head_dim);

}  // namespace zeepo
