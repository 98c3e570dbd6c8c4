// A plan as one page that needs nothing else: bars of bytes by tier, kind and placement, the simulated step, curves.
// page/plan.js draws it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/plan/inference_choice.h"
#include "zeepo/plan/plan_curves.h"
#include "zeepo/plan/recommended.h"

namespace zeepo {

// Of training: `plans` are those of the same setup and machine.
std::string training_page(const std::string& about, const Recommended& recommended, const std::vector<ExactPlan>& plans,
                          const PlanMachine& machine, const OptionTexts& given);
std::string inference_page(const std::string& about, const InferenceQuestion& question,
                           const std::vector<InferenceChoice>& choices);
// Of the formulas.
std::string formula_page(const std::string& about, const Textbook& textbook, const std::vector<PlanCurve>& curves);
// Of plans at each point of a sweep.
std::string sweep_page(const std::string& about, const std::vector<PlanCurve>& curves);

// The text of page/plan.js.
std::string_view plan_script();

}  // namespace zeepo
