#include "zeepo/model/config_sizes.h"

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr double kMaxParameters = 0x1p57;  // 16 bytes of state for each fit 63 bits

void check_parameters(const ModelConfig& config, const std::string& what) {
  const auto hidden = static_cast<double>(config.hidden);
  const double attention =
      hidden * static_cast<double>(config.head_dim) * 2 * static_cast<double>(config.heads + config.kv_heads);
  const double mlp = 3 * hidden * static_cast<double>(config.intermediate);
  const double ends = hidden * static_cast<double>(2 * config.vocab + config.max_positions);
  const double parameters = static_cast<double>(config.layers) * (attention + mlp) + ends;
  if (parameters > kMaxParameters)
    throw Error(
        "{}: {} layers of hidden size {} with vocabulary {} are about {:.1e} parameters, more than the {:.1e} "
        "that can be counted in bytes",
        what, config.layers, config.hidden, config.vocab, parameters, kMaxParameters);
}

}  // namespace

void check(const ModelConfig& config, const std::string& what, const SizeNames& names) {
  const auto within = [&](const char* name, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most) throw Error("{}: {} {}: must be from 1 to {}", what, name, value, most);
  };
  within(names.layers, config.layers, kMaxLayers);
  within(names.hidden, config.hidden, kMaxWidth);
  within(names.heads, config.heads, kMaxWidth);
  within(names.vocab, config.vocab, kMaxVocab);
  within(names.positions, config.max_positions, kMaxPositions);
  check_parameters(config, what);
}

}  // namespace zeepo
