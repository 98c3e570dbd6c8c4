// Who steps offloaded optimizer state: measured before a run, and said in its plan.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "zeepo/comm/gpu_place.h"
#include "zeepo/train/planning.h"

namespace zeepo {

// A collective; takes memory for the time being.
StepRates measure_steps(const RunSetup& setup, const GpuPlace& place, Communicator& communicator);

// For programs and for people; empty where nothing is offloaded.
nlohmann::ordered_json step_below_json(const RunPlan& plan);
std::string step_below_text(const RunPlan& plan);

}  // namespace zeepo
