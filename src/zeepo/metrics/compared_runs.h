// Runs side by side: speed, memory, bytes, stalls, losses.
#pragma once

#include <string>
#include <vector>

#include "zeepo/metrics/run_digest.h"

namespace zeepo {

struct ComparedRun {
  std::string name;
  const RunDigest* digest;
};

// A table with a column a run; behind each number how many times that of the first run it is.
std::string comparison_text(const std::vector<ComparedRun>& runs);
// {"runs":[{"name":..,"figures":{..}},..],"losses":{"common_steps":..,"first_difference":..}}
Event comparison_json(const std::vector<ComparedRun>& runs);

}  // namespace zeepo
