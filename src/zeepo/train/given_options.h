// The options of a run from the texts that a user gives: on the command line, or in another language's call.
#pragma once

#include <string>
#include <vector>

#include "zeepo/train/deepspeed_config.h"
#include "zeepo/train/option_table.h"

namespace zeepo {

struct GivenOptions {
  TrainOptions options;
  std::vector<std::string> notes;  // what follows from the options and no option says, a line each
};

// `texts` over DeepSpeed's file, where there is one, over the defaults on this machine: the device, the dtype, and what
// is tuned or, with --placement auto, chosen because nothing fixes it. Throws UsageError for what is wrong in one
// option or in several together, and for a device that is not there.
GivenOptions make_options(const OptionTexts& texts, const DeepSpeedConfig* config, int ranks);

}  // namespace zeepo
