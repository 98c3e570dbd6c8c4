// A finished run, planned again for this machine: what its step is predicted to take.
#pragma once

#include "zeepo/metrics/explained_run.h"

namespace zeepo {

// `plan` is the plan event of a log. Its "options" and config.json of the model say what ran, and what `zeepo probe`
// has kept of this machine how fast it is; where one of them is not there, why.
PredictedStep predict_again(const Event& plan);

}  // namespace zeepo
