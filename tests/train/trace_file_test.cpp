// --trace: a file that viewers open, with every kind of work on its row.
#include "zeepo/train/trace_file.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "tests/support/test_directory.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

TrainOptions options_in(const TestDirectory& directory) {
  const Golden golden = load_golden("golden/gpt2-tiny");
  TrainOptions options;
  options.model = golden.directory;
  options.data = golden.directory / "tokens.bin";
  options.seq_len = golden.seq();
  options.micro_batch = 1;
  options.steps = 3;
  options.threads = 1;
  options.device_bytes = options.host_bytes = 1 << 28;
  options.trace = directory.path() / "trace.json";
  return options;
}

struct Run {
  Json events;
  std::string said;
};

Run run_traced(const TrainOptions& options, int ranks) {
  testing::internal::CaptureStderr();
  ThreadsWorld world(ranks);
  run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
  const std::string said = testing::internal::GetCapturedStderr();
  return {Json::parse(read_text(options.trace)).at("traceEvents"), said};
}

TrainOptions all_on_nvme(const TestDirectory& directory) {
  TrainOptions options = options_in(directory);
  options.placement = {Shares::all_in(Place::nvme), Shares::all_in(Place::nvme), Place::nvme};
  options.nvme_paths = {directory.path()};
  options.stage = 3;
  return options;
}

TEST(TraceFile, EveryKindOfWorkIsOnItsRow) {
  const TestDirectory directory;
  const auto [events, said] = run_traced(all_on_nvme(directory), 2);
  EXPECT_TRUE(names(said, "steps 1 to 3", "trace.json"));
  std::map<std::pair<int, int>, std::string> rows;  // by rank and row
  for (const auto& event : events)
    if (event.at("name") == "thread_name") rows[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
  std::map<int, std::set<std::string>> seen;
  for (const auto& event : events)
    if (event.at("ph") == "X")
      seen[event.at("pid")].insert(rows.at({event.at("pid"), event.at("tid")}) + ": " +
                                   event.at("name").get<std::string>());
  ASSERT_EQ(seen.size(), 2u);
  for (const auto& [rank, spans] : seen)
    for (const char* span : {"steps: step 2",
                             "compute: forward transformer.h.1",
                             "compute: backward transformer.h.1",
                             "compute: step",
                             "host step: step transformer.h.1",
                             "collectives: all-gather parameters of transformer.h.1",
                             "collectives: reduce-scatter gradients of transformer.h.1",
                             "collectives: all-gather losses",
                             "host to device: copy parameters transformer.h.1",
                             "host to device: copy activations transformer.h.1",
                             "device to host: copy gradients transformer.h.1",
                             "device to host: copy activations transformer.h.1",
                             "file reads: read optimizer transformer.h.1",
                             "file reads: read parameters transformer.h.1",
                             "file reads: read gradients transformer.h.1",
                             "file reads for the device: read parameters transformer.h.1",
                             "file reads for the device: read activations transformer.h.1",
                             "file writes: write optimizer transformer.h.1",
                             "file writes: write parameters transformer.h.1",
                             "file writes from the device: write gradients transformer.h.1",
                             "file writes from the device: write activations transformer.h.1"})
      EXPECT_TRUE(spans.contains(span)) << "rank " << rank << " has no " << span;
}

TEST(TraceFile, SpansOfARowNestOrLieApart) {
  const TestDirectory directory;
  TrainOptions options = all_on_nvme(directory);
  options.grad_accum = 2;
  const auto [events, said] = run_traced(options, 1);
  struct Interval {
    double start, end;
    std::string name;
  };
  std::map<int, std::vector<Interval>> rows;
  for (const auto& event : events)
    if (event.at("ph") == "X") {
      const double start = event.at("ts"), duration = event.at("dur");
      EXPECT_GE(start, 0);
      EXPECT_GE(duration, 0);
      rows[event.at("tid")].push_back({start, start + duration, event.at("name")});
    }
  EXPECT_GE(rows.size(), 9u);  // all but the collectives
  constexpr double kRounding = 0.002;
  for (auto& [row, spans] : rows) {
    std::ranges::stable_sort(
        spans, [](const auto& a, const auto& b) { return a.start != b.start ? a.start < b.start : a.end > b.end; });
    std::vector<Interval> open;
    for (const auto& span : spans) {
      while (!open.empty() && open.back().end <= span.start + kRounding) open.pop_back();
      const double within = open.empty() ? span.end : open.back().end;
      EXPECT_LE(span.end, within + kRounding) << row << ": " << span.name;
      open.push_back(span);
    }
  }
}

TEST(TraceFile, ATraceChangesNothing) {
  const TestDirectory directory;
  TrainOptions options = all_on_nvme(directory);
  const auto hash = [&] {
    options.log = (directory.path() / "log.jsonl").string();
    testing::internal::CaptureStderr();
    Trainer(options).run();
    testing::internal::GetCapturedStderr();
    const std::string log = read_text(options.log);
    return Json::parse(log.substr(log.rfind('\n', log.size() - 2) + 1)).at("weights_hash").get<std::string>();
  };
  const std::string traced = hash();
  options.trace.clear();
  EXPECT_EQ(hash(), traced);
}

TEST(TraceFile, AFileThatCannotBeMadeIsSaidAtOnce) {
  const TestDirectory directory;
  TrainOptions options = options_in(directory);
  options.trace = directory.path() / "none" / "trace.json";
  testing::internal::CaptureStderr();
  const std::string text = error_text([&] { Trainer(options).run(); });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(names(text, "--trace", "none/trace.json"));
  EXPECT_EQ(said.find("step 1"), std::string::npos);
}

}  // namespace
}  // namespace zeepo
