// The options of zeepo.init(): those of `zeepo train` that mean something for a module of PyTorch's, by the same names.
#pragma once

#include <string>

#include "zeepo/runtime/runtime.h"
#include "zeepo/train/given_options.h"

namespace zeepo {

// Texts by names as on the command line ("--stage"), over DeepSpeed's file, where one is named. Throws UsageError for
// what is wrong, and for options that need a model or a loop of zeepo's own.
GivenOptions make_torch_options(const OptionTexts& texts, const std::string& config_file, int ranks);

// The number of weights that files would have to hold: room is made for all their states.
RuntimeOptions runtime_options(const TrainOptions& options, std::int64_t weights, int ranks);

// Of a module whose parameters are of this dtype; the optimizer's own settings come with each step.
EngineOptions torch_engine_options(const TrainOptions& options, DType dtype);

}  // namespace zeepo
