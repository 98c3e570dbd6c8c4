// How much of the traffic to host memory and files the compute hides: one rank, one compute thread, states of one kind
// below the device, the way there throttled so that it is busy for 0.5, 1 and 2 times what the compute takes.
//
//   bench_overlap_tiers [sleep|gpt2] [DIRECTORY]     files go into DIRECTORY [the current one]
//
// Compute is what a step takes over fast links less the time it waited, the step on the host included: it is done by
// the same cores. A link's time is the bytes that a step carries over its rate, each way of the host link by itself,
// reads and writes of files together. `of max` is the step against the slowest of them. With clipping no weight is
// stepped before the last gradient is known, so that a step has two halves, the backward pass, and step and next
// forward pass, and what is carried in the one cannot be carried in the other, but for what is read ahead or written
// behind: `of halves` is against the sum of each half's slowest resource, by the bytes asked for in each. Without
// clipping each unit is stepped inside the backward pass. Times are the least over a few steps.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <vector>

#include "bench/overlap_subjects.h"
#include "zeepo/binding/model_engine.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/zero/session.h"

namespace zeepo {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kRate = 1e-4;
constexpr int kWarmSteps = 2, kSteps = 3;  // the first records the order of visits, the second starts with idle links

struct Setting {
  const char* name;
  Placement placement;
  Place slow;                                               // the resource that is throttled
  int pieces_under_way = EngineOptions{}.pieces_under_way;  // of states in files
  StepPhase step_phase = StepPhase::after_backward;
};

const std::array kSettings{
    Setting{"optimizer in host memory", {{}, Shares::all_in(Place::host), Place::device}, Place::host},
    Setting{"optimizer on nvme", {{}, Shares::all_in(Place::nvme), Place::device}, Place::nvme},
    Setting{"optimizer on nvme, 32 buffers", {{}, Shares::all_in(Place::nvme), Place::device}, Place::nvme, 32},
    Setting{"optimizer in host memory, no clipping",
            {{}, Shares::all_in(Place::host), Place::device},
            Place::host,
            4,
            StepPhase::in_backward},
    Setting{"optimizer on nvme, no clipping",
            {{}, Shares::all_in(Place::nvme), Place::device},
            Place::nvme,
            4,
            StepPhase::in_backward},
    Setting{"optimizer on nvme, 32 buffers, no clipping",
            {{}, Shares::all_in(Place::nvme), Place::device},
            Place::nvme,
            32,
            StepPhase::in_backward},
    Setting{"parameters in host memory", {Shares::all_in(Place::host), {}, Place::device}, Place::host},
    Setting{"parameters on nvme", {Shares::all_in(Place::nvme), {}, Place::device}, Place::nvme},
    Setting{"activations in host memory", {{}, {}, Place::host}, Place::host},
    Setting{"activations on nvme", {{}, {}, Place::nvme}, Place::nvme},
};

// Of a step: seconds of compute and bytes asked for.
struct Half {
  double compute = 0;
  LinkBytes carried;

  double busiest_bytes(Place slow) const {
    return static_cast<double>(slow == Place::nvme ? carried.read + carried.written
                                                   : std::max(carried.to_device, carried.to_host));
  }
};

LinkBytes operator+(const LinkBytes& a, const LinkBytes& b) {
  return {a.to_device + b.to_device, a.to_host + b.to_host, a.read + b.read, a.written + b.written};
}

struct Timing {
  double seconds = 0;
  Half forward, backward;  // forward: with the step
  double compute() const { return forward.compute + backward.compute; }
  double busiest_bytes(Place slow) const { return Half{0, forward.carried + backward.carried}.busiest_bytes(slow); }
};

class Laps {
 public:
  Laps(const ModelEngine& engine, LowerTiers& lower) : engine_(engine), lower_(lower) { (void)next(); }
  // Since the last one.
  Half next() {
    const auto now = Clock::now();
    const Stalls stalls = engine_.stalls();
    const Stalls waited = stalls - stalls_;
    const LinkBytes carried = lower_.carried();
    Half lap{std::chrono::duration<double>(now - at_).count() - waited.host - waited.nvme, carried - carried_};
    at_ = now;
    stalls_ = stalls;
    carried_ = carried;
    return lap;
  }

 private:
  const ModelEngine& engine_;
  LowerTiers& lower_;
  Clock::time_point at_;
  Stalls stalls_;
  LinkBytes carried_;
};

Timing time_step(ModelEngine& engine, LowerTiers& lower, Subject& subject) {
  Timing timing;
  const auto start = Clock::now();
  Laps laps(engine, lower);
  engine.expect_rate(kRate);
  engine.micro_step([&] {
    Tensor loss = subject.loss();
    timing.forward = laps.next();
    return loss;
  });
  timing.backward = laps.next();
  (void)engine.step(kRate);
  const Half step = laps.next();
  timing.forward = {timing.forward.compute + step.compute, timing.forward.carried + step.carried};
  timing.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return timing;
}

template <class S>
Timing measure(const Setting& setting, const std::filesystem::path& directory, double bytes_per_second) {
  LowerTiers::Options lower{
      .host_bytes = std::int64_t{1} << 30, .nvme_paths = {directory}, .nvme_bytes = std::int64_t{1} << 30};
  lower.staging_bytes = 1 << 20;
  (setting.slow == Place::nvme ? lower.nvme_bytes_per_second : lower.link_bytes_per_second) = bytes_per_second;
  Session session({.threads = 1, .device_bytes = std::int64_t{1} << 30, .lower = lower});
  S subject;
  ModelEngine engine(subject.model(), session.communicator(),
                     {.stage = 3,
                      .prefetch_bytes = S::kPrefetchBytes,
                      .placement = setting.placement,
                      .piece_elements = 1 << 19,
                      .pieces_under_way = setting.pieces_under_way,
                      .clip = setting.step_phase == StepPhase::in_backward ? 0.0f : EngineOptions{}.clip,
                      .step_phase = setting.step_phase,
                      .activation_checkpointing = true});
  engine.load(random_weights(1));
  Timing best;
  for (int i = -kWarmSteps; i < kSteps; ++i) {
    const Timing timing = time_step(engine, session.lower(), subject);
    if (i == 0 || (i > 0 && timing.seconds < best.seconds)) best = timing;
  }
  engine.settle();
  return best;
}

template <class S>
void report(std::string_view name, const std::filesystem::path& directory) {
  fmt::print("\n{} blocks of {}\n\n", kBlocks, name);
  fmt::print("| below the device | link MB/s | compute s | link s | step s | of max | halves s | of halves |\n");
  fmt::print("|---|---|---|---|---|---|---|---|\n");
  for (const Setting& setting : kSettings) {
    const Timing alone = measure<S>(setting, directory, 0);
    for (const double share : {0.5, 1.0, 2.0}) {
      const double rate = alone.busiest_bytes(setting.slow) / (share * alone.compute());
      const Timing slow = measure<S>(setting, directory, rate);
      const double link = slow.busiest_bytes(setting.slow) / rate;
      const double longer = std::max(alone.compute(), link);
      const double halves = std::max(alone.forward.compute, slow.forward.busiest_bytes(setting.slow) / rate) +
                            std::max(alone.backward.compute, slow.backward.busiest_bytes(setting.slow) / rate);
      fmt::print("| {} | {:.1f} | {:.3f} | {:.3f} | {:.3f} | {:.2f} | {:.3f} | {:.2f} |\n", setting.name, rate / 1e6,
                 alone.compute(), link, slow.seconds, slow.seconds / longer, halves, slow.seconds / halves);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace zeepo

int main(int argc, char** argv) {
  const std::string_view which = argc > 1 ? argv[1] : "";
  if (argc > 3 || (!which.empty() && which != "sleep" && which != "gpt2")) {
    fmt::print(stderr, "bench_overlap_tiers [sleep|gpt2] [DIRECTORY for files]: without a word, both\n");
    return 2;
  }
  const std::filesystem::path directory = argc > 2 ? argv[2] : ".";
  if (which != "gpt2") zeepo::report<zeepo::SleepingSubject>("sleep", directory);
  if (which != "sleep") zeepo::report<zeepo::Gpt2Subject>("GPT-2", directory);
}
