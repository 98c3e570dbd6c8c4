// How much of the communication the compute hides: two ranks as threads, one compute thread each, over a link that is
// throttled so that communication takes 0.5, 1 and 2 times what the compute takes.
//
// Compute alone is a step over the fast link less the time it waited; communication alone is the bytes that a step
// sends over the rate. With prefetch a step should take as long as the longer of the two, without it as long as both
// together. Two models: GPT-2 blocks, and blocks whose compute is a sleep of the same shape, which shows the schedule
// by itself where others use the same cores. Times are the least over a few steps, each the slower rank's.
//
// `least` is what the order of the data allows. Stage 3 can hide all its communication. Stage 2 can reduce under the
// backward pass alone, and gather the stepped parameters under the step and the next forward pass alone; stage 0, which
// gathers gradients, can do that under both.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "bench/overlap_subjects.h"
#include "zeepo/binding/model_engine.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/comm/throttled/throttled_communicator.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/zero/session.h"

namespace zeepo {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2;
constexpr int kWarmSteps = 2, kSteps = 3,
              kStepsAlone = 6;  // the first records the trace, the second starts with an idle link

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// One step: its time, of that the parts that this rank computed, and what it sent.
struct Timing {
  double seconds = 0, forward = 0, backward = 0, step = 0;
  std::int64_t gathered_bytes = 0, reduced_bytes = 0;
  double compute() const { return forward + backward + step; }
};

Timing time_step(ModelEngine& engine, Subject& subject) {
  Timing timing;
  const auto start = Clock::now();
  const CommBytes sent = engine.sent();
  auto lap = [&, at = start, stalled = engine.stalls().gather]() mutable {
    const double elapsed = seconds_since(at) - (engine.stalls().gather - stalled);
    at = Clock::now();
    stalled = engine.stalls().gather;
    return elapsed;
  };
  engine.micro_step([&] {
    Tensor loss = subject.loss();
    timing.forward = lap();
    return loss;
  });
  timing.backward = lap();
  (void)engine.step(1e-4);
  timing.step = lap();
  timing.seconds = seconds_since(start);
  timing.gathered_bytes = engine.sent().all_gather - sent.all_gather;
  timing.reduced_bytes = engine.sent().reduce_scatter - sent.reduce_scatter;
  return timing;
}

struct Setting {
  int stage;
  std::int64_t prefetch_bytes;
  double bytes_per_second;  // 0: as fast as it goes
  int steps = kSteps;
};

// The fastest step; a step is as slow as its slower rank.
template <class S>
Timing measure(const Setting& setting) {
  std::vector<Timing> steps(static_cast<std::size_t>(setting.steps));
  std::mutex mutex;
  ThreadsWorld world(kRanks);
  run(world, [&](Communicator& fast) {
    std::optional<ThrottledCommunicator> slow;
    if (setting.bytes_per_second > 0) slow.emplace(fast, setting.bytes_per_second);
    Session session({.threads = 1, .device_bytes = std::int64_t{1} << 30, .ranks_on_node = kRanks},
                    slow ? static_cast<Communicator&>(*slow) : fast);
    S subject;
    ModelEngine engine(subject.model(), session.communicator(),
                       {.stage = setting.stage, .prefetch_bytes = setting.prefetch_bytes});
    engine.load(random_weights(1));
    for (int i = -kWarmSteps; i < setting.steps; ++i) {
      const Timing timing = time_step(engine, subject);
      if (i < 0) continue;
      const std::lock_guard lock(mutex);
      Timing& slower = steps[static_cast<std::size_t>(i)];
      if (timing.seconds > slower.seconds) slower = timing;
    }
    engine.settle();
  });
  return *std::ranges::min_element(steps, {}, &Timing::seconds);
}

// What a step can take at least, given the parts of its compute and the time that it sends.
double least_seconds(int stage, const Timing& compute, double gather, double reduce) {
  switch (stage) {
    case 3: return std::max(compute.compute(), gather + reduce);
    case 0: return std::max(std::max(compute.backward, reduce) + compute.forward + compute.step, gather + reduce);
    default: return std::max(compute.backward, reduce) + std::max(compute.forward + compute.step, gather);
  }
}

template <class S>
void report(std::string_view name, const std::vector<int>& stages) {
  fmt::print("\n{} blocks of {}, {} ranks\n\n", kBlocks, name, kRanks);
  fmt::print(
      "| stage | link MB/s | compute s | communication s | prefetch s | of max | least s | of least | in turn s | of "
      "sum |\n");
  fmt::print("|---|---|---|---|---|---|---|---|---|---|\n");
  for (const int stage : stages) {
    const Timing alone = measure<S>({stage, 0, 0, kStepsAlone}), ahead = measure<S>({stage, S::kPrefetchBytes, 0, 1});
    for (const double share : {0.5, 1.0, 2.0}) {
      // What prefetch holds over the turn of a pass is not gathered twice: each way sends its own bytes.
      const auto bytes = [](const Timing& t) { return static_cast<double>(t.gathered_bytes + t.reduced_bytes); };
      const double rate = bytes(ahead) / (share * alone.compute());
      const Timing c = measure<S>({stage, S::kPrefetchBytes, rate}), d = measure<S>({stage, 0, rate});
      const double compute = alone.compute(), communication = bytes(c) / rate;
      const double longer = std::max(compute, communication), sum = compute + bytes(d) / rate;
      const double least = least_seconds(stage, alone, static_cast<double>(c.gathered_bytes) / rate,
                                         static_cast<double>(c.reduced_bytes) / rate);
      fmt::print("| {} | {:.1f} | {:.3f} | {:.3f} | {:.3f} | {:.2f} | {:.3f} | {:.2f} | {:.3f} | {:.2f} |\n", stage,
                 rate / 1e6, compute, communication, c.seconds, c.seconds / longer, least, c.seconds / least, d.seconds,
                 d.seconds / sum);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace zeepo

int main(int argc, char** argv) {
  const std::string_view which = argc > 1 ? argv[1] : "", stage = argc > 2 ? argv[2] : "";
  const bool one = stage.size() == 1 && stage[0] >= '0' && stage[0] <= '3';
  if (argc > 3 || (argc > 1 && which != "sleep" && which != "gpt2") || (argc > 2 && !one)) {
    fmt::print(stderr, "bench_overlap [sleep|gpt2 [STAGE]]: without a word, both; stages 3, 2 and 0\n");
    return 2;
  }
  const std::vector<int> stages = one ? std::vector{stage[0] - '0'} : std::vector{3, 2, 0};
  if (which != "gpt2") zeepo::report<zeepo::SleepingSubject>("sleep", stages);
  if (which != "sleep") zeepo::report<zeepo::Gpt2Subject>("GPT-2", stages);
}
