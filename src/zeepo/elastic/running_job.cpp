#include "zeepo/elastic/running_job.h"

#include <csignal>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/base/stop_request.h"

namespace zeepo {
namespace {

using std::chrono::seconds;

constexpr int kLookMs = 50;
constexpr auto kAskMissing = seconds(5);
constexpr int kAnswersOfReturn = 2;  // in a row: a host that comes and goes is none
// While ranks beat, they find a host that is lost. Before they do, and after, nobody writes lines: hosts are asked
// then.
constexpr auto kQuietStart = seconds(15), kQuiet = seconds(60), kAskMembers = seconds(5);
constexpr int kSilencesOfLoss = 3;
// A job that has lost a rank ends by itself, as a rule; its launcher may wait for a host that is gone.
constexpr auto kUntilTold = seconds(20), kUntilKilled = seconds(26);

}  // namespace

RunningJob::RunningJob(const std::vector<std::string>& command, const RankLayout& layout,
                       const std::vector<HostSlots>& missing)
    : hosts_(layout.hosts), mpirun_(command, ChildProcess::Output::pass_stdout) {
  for (const HostSlots& host : missing) missing_[host.name].next = Clock::now() + kAskMissing;
  for (const HostSlots& host : hosts_)
    if (!is_this_machine(host.name)) members_[host.name];
}

std::optional<int> RunningJob::advance() {
  const std::optional<int> code = mpirun_.ended();
  for (std::string text = mpirun_.read(code ? 0 : kLookMs); !text.empty(); text = mpirun_.read(0)) {
    say("{}", text);
    lines_.add(text);
    last_line_ = Clock::now();
  }
  if (code) return code;
  if (StopRequest::signal() != 0) stop(fmt::format("told to end by {}", name_of_signal(StopRequest::signal())));
  look_for_returns();
  look_for_losses();
  end_what_hangs();
  return std::nullopt;
}

// Before its first line a job has nothing to save, and its ranks do not know the signal yet.
void RunningJob::stop(const std::string& why) {
  if (!stopped_for_.empty()) return;
  stopped_for_ = why;
  if (lines_.any())
    mpirun_.send(SIGUSR1);  // which it passes on to all ranks
  else
    mpirun_.send(SIGTERM);
}

void RunningJob::ask(const std::string& host, Watched& watched, bool wanted, seconds pause) {
  if (!watched.probe) {
    if (Clock::now() < watched.next) return;
    watched.probe.emplace(host);
  }
  const auto answers = watched.probe->answers();
  if (!answers) return;
  watched.in_a_row = *answers == wanted ? watched.in_a_row + 1 : 0;
  watched.probe.reset();
  watched.next = Clock::now() + pause;
}

std::string RunningJob::loss() const {
  return lost_host_.empty() ? lines_.loss() : fmt::format("host {} does not answer", lost_host_);
}

void RunningJob::look_for_returns() {
  if (!stopped_for_.empty() || hopeless_since_ || !lines_.any()) return;
  for (auto& [host, watched] : missing_) {
    ask(host, watched, true, kAskMissing);
    if (watched.in_a_row >= kAnswersOfReturn) return stop(host + " is back");
  }
}

void RunningJob::look_for_losses() {
  if (hopeless_since_ || Clock::now() - last_line_ < (lines_.any() ? kQuiet : kQuietStart)) return;
  for (auto& [host, watched] : members_) {
    ask(host, watched, false, kAskMembers);
    if (watched.in_a_row < kSilencesOfLoss) continue;
    say("zeepo: host {} does not answer, and the job says nothing: it is ended\n", host);
    lost_host_ = host;
    hopeless_since_ = Clock::now() - kUntilTold;
    return;
  }
}

void RunningJob::end_what_hangs() {
  if (!lines_.ending() && !hopeless_since_) return;
  if (!hopeless_since_) hopeless_since_ = Clock::now();
  const auto since = Clock::now() - *hopeless_since_;
  if (since > kUntilKilled) mpirun_.send_to_group(SIGKILL);
  if (since < kUntilTold || told_to_end_ || lines_.ending()) return;  // one that is ending already would crash
  told_to_end_ = true;
  mpirun_.send(SIGTERM);
}

}  // namespace zeepo
