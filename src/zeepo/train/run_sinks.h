// What the events of a training run go to: `--log`, and the same for other tools.
#pragma once

#include "zeepo/metrics/event_sinks.h"
#include "zeepo/train/options.h"

namespace zeepo {

// For rank 0. Throws Error when one cannot be made; the files of a resumed run are appended to.
EventSinks make_sinks(const TrainOptions& options);

}  // namespace zeepo
