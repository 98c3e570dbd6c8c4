// `zeepo train --elastic`: starts the ranks with mpirun, and again when the hosts change.
//
// A job ends when a host or a rank is lost. The supervisor then asks which hosts answer and starts a job on these, from
// the newest checkpoint. A host that returns has the job stopped at a checkpoint and started with it. Every job has the
// same micro-batches a step, so that the run ends with the weights of one that nobody disturbed. The supervisor itself
// is on one machine, the head; it holds no state but the list of hosts.
#pragma once

#include <string>

#include "zeepo/elastic/host_list.h"
#include "zeepo/train/option_table.h"
#include "zeepo/train/options.h"

namespace zeepo {

struct ElasticRun {
  OptionTexts texts;   // as given
  std::string config;  // DeepSpeed's file; empty: none
  std::vector<HostSlots> hosts;
  TrainOptions options;  // what texts and config say on all ranks of `hosts`
};

// The exit code of the run. Throws Error where no host answers at the start, UsageError where the directory holds
// checkpoints and --resume is not given.
int supervise(const ElasticRun& run);

}  // namespace zeepo
