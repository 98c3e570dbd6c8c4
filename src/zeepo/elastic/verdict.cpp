#include "zeepo/elastic/verdict.h"

#include "zeepo/base/error.h"
#include "zeepo/train/stopping.h"

namespace zeepo {

bool ends_the_run(int exit_code) {
  constexpr int kUsageError = 2;
  return exit_code == 0 || exit_code == kUsageError || exit_code == kLastSaveFailed;
}

Next Verdict::next_after(const EndedJob& job) {
  constexpr int kFirstSignal = 129;
  if (ends_the_run(job.exit_code)) return job.exit_code == 0 ? Next::finished : Next::give_up;
  if (job.directory_taken) return ++pauses_ > kMostPauses ? Next::give_up : Next::again_after_pause;
  pauses_ = 0;
  if (job.asked_to_stop) return Next::again;
  const bool stopped = job.exit_code == kStoppedAndSaved;  // by a signal to a rank
  if (!stopped && !job.rank_lost && !job.host_lost && job.exit_code < kFirstSignal) return Next::give_up;
  if (job.host_lost || job.step_after > job.step_before) {
    fruitless_ = 0;
    return Next::again;
  }
  if (++fruitless_ < kMostFruitless) return Next::again;
  reason_ = fmt::format("the job has failed {} times after step {}, with no host lost and no new checkpoint",
                        fruitless_, job.step_after);
  return Next::give_up;
}

}  // namespace zeepo
