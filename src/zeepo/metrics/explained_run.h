// A finished run beside its plan: where memory and time went, and what to change.
#pragma once

#include <string>

#include "zeepo/metrics/run_digest.h"

namespace zeepo {

// What a plan of the same run says today.
struct PredictedStep {
  double seconds = 0;  // 0: not known
  std::string about;   // whose speeds these are, or why there are none
};

// Throws Error for a log that has no plan or no step.
std::string explanation_text(const RunDigest& run, const PredictedStep& predicted);
// {"memory":[{"tier":..,"kind":..,"planned":..,"held":..},..],"time":{"seconds_per_step":..,"predicted_seconds":..,
//  "predicted_by":"..","stalls":{..},"rest":..},"bytes_per_step":{"link_bytes/host_to_device":..,..},"advice":[".."]}
Event explanation_json(const RunDigest& run, const PredictedStep& predicted);

}  // namespace zeepo
