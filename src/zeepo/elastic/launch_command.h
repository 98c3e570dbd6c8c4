// The command that starts a job: mpirun, its options and zeepo's.
#pragma once

#include <string>
#include <vector>

#include "zeepo/elastic/rank_layout.h"
#include "zeepo/train/option_table.h"

namespace zeepo {

// `texts` are the options as the supervisor was given them, `config` DeepSpeed's file where there is one. Those of the
// supervisor are left out, and the layout's --grad-accum is set: the job goes on from the newest checkpoint.
std::vector<std::string> launch_command(const RankLayout& layout, const std::string& program, const OptionTexts& texts,
                                        const std::string& config);

}  // namespace zeepo
