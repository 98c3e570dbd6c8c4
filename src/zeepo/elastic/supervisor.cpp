#include "zeepo/elastic/supervisor.h"

#include <poll.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/base/stop_request.h"
#include "zeepo/checkpoint/checkpoint_directory.h"
#include "zeepo/elastic/launch_command.h"
#include "zeepo/elastic/running_job.h"
#include "zeepo/elastic/verdict.h"
#include "zeepo/metrics/csv_file.h"
#include "zeepo/metrics/event_log.h"
#include "zeepo/train/report.h"
#include "zeepo/train/stopping.h"

namespace zeepo {
namespace {

constexpr int kPauseMs = 2000;

// In the order of `hosts`.
std::vector<HostSlots> without(const std::vector<HostSlots>& hosts, const std::vector<HostSlots>& those) {
  std::vector<HostSlots> left;
  for (const HostSlots& host : hosts)
    if (std::ranges::find(those, host.name, &HostSlots::name) == those.end()) left.push_back(host);
  return left;
}

class Supervisor {
 public:
  explicit Supervisor(const ElasticRun& run)
      : run_(run),
        micro_batches_(run.options.grad_accum * slots_of(run.hosts)),
        program_(std::filesystem::read_symlink("/proc/self/exe").string()) {}

  int run() {
    start_log();
    std::vector<HostSlots> hosts = hosts_that_answer(run_.hosts);
    if (hosts.empty() && !told_to_end())
      throw Error("train: --elastic: none of the hosts answers: {}", names_of(run_.hosts));
    std::string why = "start";
    if (const auto missing = without(run_.hosts, hosts); !missing.empty())
      why = fmt::format("start without {}", names_of(missing));
    while (!told_to_end()) {
      const RankLayout layout = layout_on(hosts, micro_batches_);
      const std::int64_t step = newest_step();
      tell(layout, slots_of(hosts), why, step);
      RunningJob job(launch_command(layout, program_, run_.texts, run_.config), layout,
                     useful(hosts, without(run_.hosts, hosts)));
      std::optional<int> code;
      while (!(code = job.advance())) continue;
      if (told_to_end()) return *code == 0 || *code == kLastSaveFailed ? *code : kStoppedAndSaved;
      EndedJob ended{.exit_code = *code,
                     .asked_to_stop = !job.stopped_for().empty(),
                     .rank_lost = !job.loss().empty(),
                     .directory_taken = job.lines().directory_taken(),
                     .step_before = step,
                     .step_after = newest_step()};
      std::vector<HostSlots> answering;
      if (!ends_the_run(*code)) answering = hosts_that_answer(run_.hosts);
      const auto lost = without(layout.hosts, answering);
      ended.host_lost = !lost.empty();
      switch (verdict_.next_after(ended)) {
        case Next::finished: return 0;
        case Next::give_up:
          if (!verdict_.reason().empty()) say("zeepo: train: --elastic: {}\n", verdict_.reason());
          return *code;
        case Next::again_after_pause: pause(); break;
        case Next::again: break;
      }
      why = reason_of(job, *code, lost);
      hosts = answering;
      while (hosts.empty() && !told_to_end()) {
        say("zeepo: no host answers: {}; asking again\n", names_of(run_.hosts));
        pause();
        hosts = hosts_that_answer(run_.hosts);
      }
    }
    return kStoppedAndSaved;
  }

 private:
  static bool told_to_end() { return StopRequest::signal() != 0; }
  static void pause() { ::poll(nullptr, 0, kPauseMs); }

  std::int64_t newest_step() const {
    const auto checkpoints = list_checkpoints(run_.options.checkpoint_dir);
    return checkpoints.empty() ? 0 : checkpoints.back().step;
  }

  // Jobs append to the log and the table.
  void start_log() const {
    const TrainOptions& options = run_.options;
    constexpr auto kFresh = GrowingFile::Mode::fresh;
    if (!options.resume.wanted && !options.log.empty()) EventLog(options.log, kFresh);
    if (!options.resume.wanted && !options.csv.empty()) CsvFile(options.csv, kFresh);
    if (options.checkpoint_every == 0)
      say("zeepo: warning: --elastic without --checkpoint-every: a host that is lost costs all steps so far\n");
  }

  // Of the missing hosts, those with which the job would have more ranks.
  std::vector<HostSlots> useful(const std::vector<HostSlots>& hosts, const std::vector<HostSlots>& missing) const {
    std::vector<HostSlots> all = hosts;
    all.insert(all.end(), missing.begin(), missing.end());
    return layout_on(all, micro_batches_).ranks > layout_on(hosts, micro_batches_).ranks ? missing
                                                                                         : std::vector<HostSlots>{};
  }

  static std::string reason_of(const RunningJob& job, int code, const std::vector<HostSlots>& lost) {
    if (!job.stopped_for().empty()) return job.stopped_for();
    if (job.lines().directory_taken()) return "the job before still had --checkpoint-dir";
    std::string why = job.loss();
    if (why.empty())
      why = code == kStoppedAndSaved ? "stopped by a signal to a rank" : fmt::format("exit code {}", code);
    return lost.empty() ? why : fmt::format("{}; lost: {}", why, names_of(lost));
  }

  void tell(const RankLayout& layout, int slots, const std::string& why, std::int64_t step) const {
    nlohmann::ordered_json names = nlohmann::ordered_json::array();
    for (const HostSlots& host : layout.hosts) names.push_back(host.name);
    if (!run_.options.log.empty())
      EventLog(run_.options.log, GrowingFile::Mode::append_lines)
          .write({{"event", "elastic"},
                  {"hosts", names},
                  {"ranks", layout.ranks},
                  {"grad_accum", layout.grad_accum},
                  {"why", why},
                  {"step", step}});
    say("zeepo: elastic: {}: {} ranks on {}, --grad-accum {}, from step {}\n", why, layout.ranks,
        names_of(layout.hosts), layout.grad_accum, step);
    if (layout.ranks < slots)
      say("zeepo: elastic: {} ranks would not divide the {} micro-batches of a step\n", slots, micro_batches_);
  }

  const ElasticRun& run_;
  const std::int64_t micro_batches_;  // of a step, on all ranks
  const std::string program_;
  Verdict verdict_;
};

}  // namespace

int supervise(const ElasticRun& run) {
  const TrainOptions& options = run.options;
  if (!options.resume.wanted && !list_checkpoints(options.checkpoint_dir).empty())
    throw UsageError(
        "train: --elastic: {} holds checkpoints of a run before; add --resume to go on from them, or name another "
        "directory",
        options.checkpoint_dir.string());
  const StopRequest::Watch watch(StopRequest::Watcher::work);
  return Supervisor(run).run();
}

}  // namespace zeepo
