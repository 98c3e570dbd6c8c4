// A job of the supervisor while it runs: its lines are passed on, hosts that are missing are asked whether they are
// back, and a job that can come to no end is ended.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/elastic/child_process.h"
#include "zeepo/elastic/host_probe.h"
#include "zeepo/elastic/job_lines.h"
#include "zeepo/elastic/rank_layout.h"

namespace zeepo {

class RunningJob {
 public:
  // `missing` are hosts that would give the job more ranks.
  RunningJob(const std::vector<std::string>& command, const RankLayout& layout, const std::vector<HostSlots>& missing);

  // Passes on lines and does what is due; the exit code at the end.
  std::optional<int> advance();

  const JobLines& lines() const { return lines_; }
  // The cause of its end, where a rank or a host was lost; empty: none was.
  std::string loss() const;
  // Why the supervisor has stopped it; empty: it has not.
  const std::string& stopped_for() const { return stopped_for_; }

 private:
  using Clock = std::chrono::steady_clock;
  // A host that is asked again and again.
  struct Watched {
    std::optional<HostProbe> probe;
    Clock::time_point next = {};
    int in_a_row = 0;  // of the answers that matter
  };

  void look_for_returns();
  void look_for_losses();
  // Counts the answers that are `wanted`; the time between two questions.
  void ask(const std::string& host, Watched& watched, bool wanted, std::chrono::seconds pause);
  void end_what_hangs();
  void stop(const std::string& why);

  const std::vector<HostSlots> hosts_;
  std::map<std::string, Watched> missing_, members_;
  ChildProcess mpirun_;
  JobLines lines_;
  Clock::time_point last_line_ = Clock::now();
  std::optional<Clock::time_point> hopeless_since_;
  bool told_to_end_ = false;
  std::string lost_host_;  // that did not answer
  std::string stopped_for_;
};

}  // namespace zeepo
