// What follows when a job has ended: pure.
#pragma once

#include <cstdint>
#include <string>

namespace zeepo {

// A job from its start to its end.
struct EndedJob {
  int exit_code = 0;           // 128 + signal for a launcher that was ended by one
  bool asked_to_stop = false;  // by the supervisor, which has hosts to add
  bool rank_lost = false;      // as the job's lines say
  bool host_lost = false;      // one that had ranks does not answer
  bool directory_taken = false;
  std::int64_t step_before = 0, step_after = 0;  // of the newest checkpoint
};

enum class Next { finished, again, again_after_pause, give_up };

// Whatever else has happened: the run is done, or asked for what cannot be.
bool ends_the_run(int exit_code);

class Verdict {
 public:
  // Losses in a row, on hosts that all answer, without a new checkpoint: then it is no accident.
  static constexpr int kMostFruitless = 3;
  // While the directory of checkpoints is still taken.
  static constexpr int kMostPauses = 20;

  Next next_after(const EndedJob& job);
  // Why it gave up, where the exit code alone does not say.
  const std::string& reason() const { return reason_; }

 private:
  int fruitless_ = 0, pauses_ = 0;
  std::string reason_;
};

}  // namespace zeepo
