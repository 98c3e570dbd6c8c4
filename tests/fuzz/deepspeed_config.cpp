// Any bytes as a DeepSpeed configuration: a UsageError at worst, and what loads gives options that are in range.
#include "zeepo/train/deepspeed_config.h"

#include <cstdlib>

#include "zeepo/base/error.h"

namespace {

bool in_range(const zeepo::TrainOptions& options) {
  try {
    check(options);
  } catch (const zeepo::Error&) {
    return false;
  }
  const auto& scale = options.loss_scale;
  return scale.initial > 0 && scale.least > 0 && scale.patience > 0 && scale.hysteresis > 0 &&
         options.prefetch_bytes >= 0 && options.piece_elements >= 0 && options.print_every > 0 &&
         options.io.call_bytes % zeepo::kDirectAlignment == 0 && options.io.depth > 0 &&
         zeepo::learning_rate(options.schedule, 3, 10) >= 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    const zeepo::DeepSpeedConfig config = zeepo::parse_deepspeed_config(json, "ds.json");
    if (zeepo::warning_of(config).find('\n') != std::string::npos) std::abort();
    for (const int ranks : {1, 3}) {
      zeepo::TrainOptions options;
      try {
        apply(config, {}, ranks, options);
      } catch (const zeepo::UsageError&) {
        continue;
      }
      if (!in_range(options)) std::abort();
    }
  } catch (const zeepo::UsageError&) {
  }
  return 0;
}
