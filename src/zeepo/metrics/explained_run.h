// A finished run beside its plan: where memory and time went, and what to change.
#pragma once

#include <string>

#include "zeepo/metrics/run_digest.h"

namespace zeepo {

// Throws Error for a log that has no plan or no step.
std::string explanation_text(const RunDigest& run);
// {"memory":[{"tier":..,"kind":..,"planned":..,"held":..},..],"time":{"seconds_per_step":..,"stalls":{..},"rest":..},
//  "advice":[".."]}
Event explanation_json(const RunDigest& run);

}  // namespace zeepo
