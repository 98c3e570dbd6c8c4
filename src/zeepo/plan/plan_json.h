// Exact plans and what they recommend, for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "zeepo/plan/recommended.h"
#include "zeepo/plan/textbook.h"

namespace zeepo {

// {"step_seconds":..,"tokens_per_second":..,"bound":"host link","busy_seconds":{"compute":..,..}}; null where unknown.
nlohmann::ordered_json to_json(const std::optional<StepTime>& time);

// {"compute":..,"host link":..,..}
nlohmann::ordered_json busy_json(const BusySeconds& busy_seconds);
// By tier and kind: {"device":{"params":..,..,"total":..},..}
nlohmann::ordered_json to_json(const MemoryPlan& memory);
// {"device":..,"host":..,"nvme":..}
nlohmann::ordered_json to_json(const PlaceBytes& bytes);

// "exact": every plan with its bytes by tier and kind; those with everything on the device beside the textbook's.
nlohmann::ordered_json exact_json(const std::vector<ExactPlan>& plans, const RunSetup& setup, const Textbook& textbook);

// "recommended".
nlohmann::ordered_json recommended_json(const Recommended& recommended, const OptionTexts& given);

}  // namespace zeepo
