// Several ranks on GPUs, one of which may serve them all: as threads over the whole grid, and under mpirun.
//
// ZEEPO_PROGRAM, ZEEPO_MPIRUN and ZEEPO_TEST_DATA in the environment say where these are on a machine other than the
// one that built the test.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <thread>
#include <utility>

#include "tests/support/elsewhere.h"
#include "tests/support/errors.h"
#include "tests/support/mpirun.h"
#include "tests/support/places.h"
#include "tests/support/run_record.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_directory.h"
#include "zeepo/comm/launch.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/device/devices.h"
#include "zeepo/train/option_table.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

std::filesystem::path golden(const char* model) {
  return std::filesystem::path(from_environment("ZEEPO_TEST_DATA", kTestData)) / "golden" / model;
}
std::string program() { return from_environment("ZEEPO_PROGRAM", kProgram); }
std::string mpirun() { return from_environment("ZEEPO_MPIRUN", kMpirun); }

// The process that mpirun has started as this rank; 0: none.
pid_t find_rank(int rank) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = whole_file(entry.path() / "environ"),
                      command = whole_file(entry.path() / "cmdline");
    if (!command.starts_with(program())) continue;
    if (environment.find(fmt::format("OMPI_COMM_WORLD_RANK={}{}", rank, '\0')) != std::string::npos)
      return static_cast<pid_t>(std::stol(name));
  }
  return 0;
}

constexpr Placement kParamsInHost{{.host = 1}, {}}, kOptimizerInHost{{}, {.host = 1}};

struct Job {
  int ranks = 1, stage = 0;
  DType dtype = DType::f32;
  std::int64_t accumulation = 1;
  Backend backend = Backend::cuda;
  Placement placement = {};
  double host_steps = 0;  // of what is in host memory
  const char* model = "llama-tiny";
  WireOptions wire = {};
  Arrangement arrangement() const {
    return {placement, placement.activations != Place::device, EngineOptions{}.prefetch_bytes};
  }
  std::string text() const {
    return fmt::format("{}, {} ranks, stage {}, {}, {} micro-steps, {}, {} stepped by the host, gather {}, reduce {}",
                       model, ranks, stage, name_of(dtype), accumulation, flags_of(arrangement()), host_steps,
                       name_of(wire.gather), name_of(wire.reduce));
  }
};

class RanksOnGpus : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSteps = 6;
  static constexpr std::int64_t kMicroBatch = 2;  // with one sample activations of 16 bits are too small to be moved

  std::filesystem::path log() const { return directory_.path() / "log.jsonl"; }

  RunRecord as_threads(const Job& job) const {
    TrainOptions options;
    options.model = golden(job.model);
    options.data = golden(job.model) / "tokens.bin";
    options.seq_len = 48;
    options.micro_batch = kMicroBatch;
    options.grad_accum = job.accumulation;
    options.steps = kSteps;
    options.order = Order::as_is;
    options.threads = 1;
    options.schedule.lr = 2e-3;
    options.optimizer.eps = 1e-6f;
    options.backend = job.backend;
    options.dtype = job.dtype;
    options.stage = job.stage;
    options.wire = job.wire;
    options.placement = job.placement;
    options.nvme_paths = {directory_.path()};
    options.host_step_share = job.host_steps;
    options.activation_checkpointing = job.arrangement().activation_checkpointing;
    options.log = log();
    testing::internal::CaptureStderr();
    ThreadsWorld world(job.ranks);
    run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
    testing::internal::GetCapturedStderr();
    return read_record(log());
  }

  std::vector<std::string> arguments(const Job& job, std::int64_t steps) const {
    std::vector<std::string> all{"-n",
                                 std::to_string(job.ranks),
                                 program(),
                                 "train",
                                 "--model",
                                 golden(job.model),
                                 "--data",
                                 golden(job.model) / "tokens.bin",
                                 "--seq-len",
                                 "48",
                                 "--micro-batch",
                                 std::to_string(kMicroBatch),
                                 "--grad-accum",
                                 std::to_string(job.accumulation),
                                 "--steps",
                                 std::to_string(steps),
                                 "--no-shuffle",
                                 "--threads",
                                 "1",
                                 "--lr",
                                 "2e-3",
                                 "--eps",
                                 "1e-6",
                                 "--device",
                                 job.backend == Backend::cuda ? "cuda" : "cpu",
                                 "--dtype",
                                 std::string(name_of(job.dtype)),
                                 "--stage",
                                 std::to_string(job.stage),
                                 "--log",
                                 log()};
    std::istringstream flags(flags_of(job.arrangement()));
    for (std::string flag; flags >> flag;) all.push_back(flag);
    for (const char* option : {"--gather-dtype", "--reduce-dtype", "--reduce-feedback", "--node-copy", "--node-size"}) {
      TrainOptions options;
      options.wire = job.wire;
      if (const std::string text = find_option(option)->text(options); text == "true")
        all.emplace_back(option);
      else if (!text.empty() && text != "false")
        all.insert(all.end(), {option, text});
    }
    return all;
  }

  RunRecord as_processes(const Job& job, const std::string& comm = "auto") const {
    auto all = arguments(job, kSteps);
    all.insert(all.end(), {"--comm", comm});
    if (comm == "nccl" && job.ranks > 1) share_gpus(all);
    const auto finished = run_program(mpirun(), all);
    EXPECT_EQ(finished.code, 0) << job.text() << "\n" << finished.err;
    return read_record(log());
  }

  // Ranks that share a GPU tell NCCL, each by a number of its own, that they are on different machines.
  static void share_gpus(std::vector<std::string>& command) {
    const auto at = std::find(command.begin(), command.end(), program());
    command.insert(at, {"sh", "-c", "NCCL_HOSTID=$$ NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo} exec \"$0\" \"$@\""});
  }

  // The second of two ranks is killed in the middle of the training.
  void expect_end_when_killed(const std::string& comm) const {
    auto all = arguments({.ranks = 2, .stage = 3}, 20'000);
    all.insert(all.end(), {"--comm", comm});
    if (comm == "nccl") share_gpus(all);
    std::atomic<bool> ended = false;
    Finished finished;
    std::thread runner([&] {
      finished = run_program(mpirun(), all);
      ended = true;
    });
    while (!ended && whole_file(log()).find("\"event\":\"step\"") == std::string::npos)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const pid_t victim = find_rank(1);
    EXPECT_TRUE(victim > 0 && ::kill(victim, SIGKILL) == 0);
    runner.join();  // CTest's limit is the limit
    EXPECT_NE(finished.code, 0);
    EXPECT_TRUE(names(finished.err, "rank 1")) << finished.err;
  }

  static void expect_same(const RunRecord& got, const RunRecord& expected, const Job& job) {
    EXPECT_EQ(got.losses.size(), static_cast<std::size_t>(kSteps)) << job.text();
    EXPECT_EQ(got.losses, expected.losses) << job.text();
    EXPECT_EQ(got.norms, expected.norms) << job.text();
    EXPECT_EQ(got.hash, expected.hash) << job.text();
    EXPECT_EQ(got.ranks.size(), static_cast<std::size_t>(job.ranks)) << job.text();
  }

  // Every stage and placement gives the same bits, near those of ranks on CPUs.
  void expect_one_result(int ranks, DType dtype, std::int64_t accumulation) const {
    const Job first{.ranks = ranks, .dtype = dtype, .accumulation = accumulation};
    const RunRecord expected = as_threads(first);
    expect_same(expected, expected, first);
    for (const int stage : {1, 2, 3}) {
      Job job = first;
      job.stage = stage;
      expect_same(as_threads(job), expected, job);
    }
    for (const int stage : {0, 3})
      for (const double host_steps : {0.0, 0.6}) {
        Job job = first;
        job.stage = stage;
        job.placement = kOptimizerInHost;
        job.host_steps = host_steps;
        expect_same(as_threads(job), expected, job);
        job.placement.params = {.host = 1};
        job.placement.activations = Place::host;
        expect_same(as_threads(job), expected, job);
      }
    expect_the_same_from_files(first, expected);
    expect_near_the_cpu(expected, first);
  }

  void expect_the_same_from_files(const Job& first, const RunRecord& expected) const {
    constexpr Shares kFiles{.nvme = 1}, kBoth{.host = 0.3, .nvme = 0.4};
    const std::pair<int, Placement> placements[]{
        {0, {{}, kFiles}}, {3, {kFiles, kFiles, Place::nvme}}, {3, {kBoth, kBoth, Place::host}}};
    for (const auto& [stage, placement] : placements) {
      Job job = first;
      job.stage = stage;
      job.placement = placement;
      const RunRecord got = as_threads(job);
      expect_same(got, expected, job);
      for (const auto& rank : got.ranks)
        for (const Place place : {Place::host, Place::nvme}) {
          const auto& peak = rank.at("peak_bytes").at(name_of(place));
          const auto expect_some = [&](const char* kind, bool some) {
            EXPECT_EQ(peak.at(kind).template get<std::int64_t>() > 0, some)
                << kind << " in " << name_of(place) << ": " << job.text();
          };
          expect_some("params", placement.params.of(place) > 0);
          expect_some("optimizer", placement.optimizer.of(place) > 0);
          expect_some("activations", placement.activations == place);
        }
    }
  }

  void expect_near_the_cpu(const RunRecord& got, Job job) const {
    job.backend = Backend::cpu;
    const RunRecord there = as_threads(job);
    ASSERT_EQ(there.losses.size(), got.losses.size());
    const double tolerance = job.dtype == DType::f32 ? 1e-5 : 1e-2;
    for (std::size_t i = 0; i < there.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], there.losses[i], tolerance * there.losses[i]) << job.text() << ", step " << i;
  }

 private:
  const TestDirectory directory_;
};

class OneRank : public RanksOnGpus, public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(OnAGpu, OneRank, ::testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

// Here the ops add to the sums of several micro-steps.
TEST_P(OneRank, GivesTheSameBitsAtEveryStage) { expect_one_result(1, GetParam(), 3); }

// Its activation is taken along by a product of the backward pass.
TEST_F(RanksOnGpus, Gpt2TrainsAsOnTheCpu) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Job job{.dtype = dtype, .accumulation = 2, .model = "gpt2-tiny"};
    Job cpu = job;
    cpu.backend = Backend::cpu;
    const RunRecord here = as_threads(job), there = as_threads(cpu);
    ASSERT_EQ(here.losses.size(), static_cast<std::size_t>(kSteps)) << job.text();
    ASSERT_EQ(there.losses.size(), static_cast<std::size_t>(kSteps)) << job.text();
    const double tolerance = dtype == DType::f32 ? 1e-5 : 1e-3;  // relu instead of gelu: 1e-3 to 6e-3
    for (std::size_t i = 0; i < there.losses.size(); ++i) {
      EXPECT_NEAR(here.losses[i], there.losses[i], tolerance * there.losses[i]) << job.text() << ", step " << i;
      EXPECT_NEAR(here.norms[i], there.norms[i], 5e-3 * there.norms[i]) << job.text() << ", step " << i;
    }
  }
}

TEST_F(RanksOnGpus, TwoRanksGiveTheSameBitsAtEveryStage) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t accumulation : {1, 2}) expect_one_result(2, dtype, accumulation);
}

TEST_F(RanksOnGpus, ThreeRanksGiveTheSameBitsAtEveryStage) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t accumulation : {1, 2}) expect_one_result(3, dtype, accumulation);
}

TEST_F(RanksOnGpus, ProcessesGiveTheBitsOfThreads) {
  for (const Job& job : {Job{.ranks = 2, .stage = 3, .dtype = DType::bf16}, Job{.ranks = 3, .stage = 1},
                         Job{.ranks = 2, .stage = 2, .accumulation = 2, .placement = kOptimizerInHost}}) {
    const RunRecord processes = as_processes(job, "mpi");
    EXPECT_EQ(processes.comm, "mpi");
    expect_same(processes, as_threads(job), job);
  }
}

TEST_F(RanksOnGpus, TheBytesSentAreThoseOfCpus) {
  for (const int stage : {0, 3}) {
    const Job job{.ranks = 2, .stage = stage};
    Job cpu = job;
    cpu.backend = Backend::cpu;
    const RunRecord here = as_threads(job), there = as_threads(cpu);
    ASSERT_EQ(here.ranks.size(), there.ranks.size());
    for (std::size_t rank = 0; rank < here.ranks.size(); ++rank)
      EXPECT_EQ(here.ranks[rank].at("comm_bytes"), there.ranks[rank].at("comm_bytes")) << job.text();
  }
}

// Coded in host memory, as on CPUs.
TEST_F(RanksOnGpus, CodedMessagesGiveTheSameBitsAtEveryStageAndPlacement) {
  constexpr WireOptions kFeedback{.gather = WireType::int8, .reduce = WireType::int4, .feedback = true, .node_size = 2};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job{.ranks = 4, .stage = 3, .dtype = dtype, .accumulation = 2, .wire = kFeedback};
    const RunRecord expected = as_threads(job);
    expect_near_the_cpu(expected, job);
    for (const int stage : {1, 2}) {
      job.stage = stage;
      expect_same(as_threads(job), expected, job);
    }
    job.stage = 3;
    job.wire.node_copy = true;
    for (const Placement& placement : {Placement{}, kParamsInHost, kOptimizerInHost}) {
      job.placement = placement;
      expect_same(as_threads(job), expected, job);
    }
  }
}

TEST_F(RanksOnGpus, CodedMessagesBesideNcclGiveTheBitsOfMpi) {
  if (!has_nccl()) GTEST_SKIP() << "this build has no NCCL";
  const WireOptions all{.gather = WireType::int8, .reduce = WireType::int4, .node_copy = true, .node_size = 1};
  const Job job{.ranks = 2, .stage = 3, .dtype = DType::bf16, .wire = all};
  const RunRecord nccl = as_processes(job, "nccl");
  EXPECT_EQ(nccl.comm, "nccl");
  expect_same(nccl, as_processes(job, "mpi"), job);
}

TEST_F(RanksOnGpus, NcclAloneGivesTheBitsOfOneRank) {
  if (!has_nccl()) GTEST_SKIP() << "this build has no NCCL";
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int stage : {0, 3}) {
      const Job job{.ranks = 1, .stage = stage, .dtype = dtype};
      const RunRecord nccl = as_processes(job, "nccl"), self = as_processes(job, "auto");
      EXPECT_EQ(nccl.comm, "nccl");
      EXPECT_EQ(self.comm, "self");
      expect_same(nccl, self, job);
    }
    // Several micro-steps are not rounded as a rank alone does it, whose ops add to the sums.
    const Job whole{.ranks = 1, .stage = 0, .dtype = dtype, .accumulation = 2};
    Job sharded = whole;
    sharded.stage = 3;
    expect_same(as_processes(sharded, "nccl"), as_processes(whole, "nccl"), sharded);
  }
}

TEST_F(RanksOnGpus, NcclGivesTheBitsOfMpi) {
  if (!has_nccl()) GTEST_SKIP() << "this build has no NCCL";
  for (const Job& job :
       {Job{.ranks = 2}, Job{.ranks = 2, .stage = 1, .dtype = DType::bf16},
        Job{.ranks = 2, .stage = 3, .dtype = DType::bf16, .accumulation = 2, .placement = kParamsInHost},
        Job{.ranks = 3, .stage = 2, .accumulation = 2, .placement = kOptimizerInHost}}) {
    const RunRecord nccl = as_processes(job, "nccl");
    EXPECT_EQ(nccl.comm, "nccl");
    expect_same(nccl, as_processes(job, "mpi"), job);
  }
}

TEST_F(RanksOnGpus, NcclWantsAGpuForEachRank) {
  if (!has_nccl()) GTEST_SKIP() << "this build has no NCCL";
  auto all = arguments({.ranks = 2 * cuda_devices()}, 1);
  all.insert(all.end(), {"--comm", "nccl"});
  const auto finished = run_program(mpirun(), all);
  EXPECT_NE(finished.code, 0);
  EXPECT_TRUE(names(finished.err, "--comm nccl", "2 ranks share a GPU", "--comm mpi")) << finished.err;
}

TEST_F(RanksOnGpus, AKilledRankEndsTheJob) { expect_end_when_killed("mpi"); }

TEST_F(RanksOnGpus, AKilledRankEndsTheJobWithNccl) {
  if (!has_nccl()) GTEST_SKIP() << "this build has no NCCL";
  expect_end_when_killed("nccl");
}

}  // namespace
}  // namespace zeepo
