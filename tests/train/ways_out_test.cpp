// What --placement auto says when nothing fits: every way out is taken as it is printed, and must work.
#include "zeepo/train/ways_out.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "tests/support/errors.h"
#include "tests/support/scratch_model.h"
#include "tests/support/units.h"
#include "zeepo/base/error.h"
#include "zeepo/base/size.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

constexpr OpenChoices kAllOpen{.params = true, .optimizer = true, .activations = true, .prefetch = true};

// The printed alternatives: for the device, and for what is offloaded. One of each that is not empty is needed.
struct Advice {
  std::vector<std::string> device, below;
};

std::vector<std::string> alternatives(const std::string& text, const std::string& heading) {
  const auto at = text.find(heading);
  if (at == std::string::npos) return {};
  std::string rest = text.substr(at + heading.size());
  rest = rest.substr(0, std::min(rest.find(". "), rest.size()));
  if (rest.ends_with(".")) rest.pop_back();
  std::vector<std::string> ways;
  for (std::size_t next = 0; next != std::string::npos;) {
    next = rest.find(", or ");
    ways.push_back(rest.substr(0, next));
    if (next != std::string::npos) rest = rest.substr(next + 5);
  }
  return ways;
}

Advice advice_of(const std::string& text) {
  return {alternatives(text, "For the device: "), alternatives(text, "In host memory and files: ")};
}

// A command line as changed by one way out. `directory` stands for DIR.
void take(const std::string& way, const std::filesystem::path& directory, TrainOptions& options) {
  std::smatch found;
  const auto matches = [&](const char* pattern) { return std::regex_search(way, found, std::regex(pattern)); };
  bool known = false;
  if (matches("--memory device=([0-9]+MiB)")) known = true, options.device_bytes = parse_size(found[1].str());
  if (matches("--memory host=([0-9]+MiB)")) known = true, options.host_bytes = parse_size(found[1].str());
  if (matches("--memory nvme=([0-9]+MiB)")) known = true, options.nvme_bytes = parse_size(found[1].str());
  if (matches("--nvme-path DIR with ([0-9.]+ [KMGT]iB) free")) {
    known = true;
    options.nvme_paths = {directory};
    if (options.nvme_bytes == 0) options.nvme_bytes = parse_size(found[1].str());  // a disk with no more than that
  }
  if (matches("--micro-batch 1 --grad-accum ([0-9]+)")) {
    known = true;
    options.micro_batch = 1;
    options.grad_accum = std::stoll(found[1].str());
  }
  if (matches("--tile-linear ([0-9]+)")) known = true, options.linear_tiles = std::stoll(found[1].str());
  if (matches("--seq-len ([0-9]+)")) known = true, options.seq_len = std::stoll(found[1].str());
  if (matches("leave .* to be chosen too")) {
    known = true;
    const TrainOptions fresh;
    if (matches("--offload-optimizer")) options.placement.optimizer = fresh.placement.optimizer;
    if (matches("--offload-param")) options.placement.params = fresh.placement.params;
    if (matches("--offload-activations")) options.placement.activations = fresh.placement.activations;
    if (matches("--prefetch")) options.prefetch_bytes = fresh.prefetch_bytes;
    options.choose = kAllOpen;
  }
  EXPECT_TRUE(known) << way;
}

class WaysOutOfAuto : public testing::Test {
 protected:
  TrainOptions options(std::int64_t device_bytes, std::int64_t host_bytes) const {
    TrainOptions options = directory_.options();
    options.seq_len = 32;
    options.micro_batch = 4;
    options.steps = 1;
    options.dtype = DType::bf16;
    options.piece_elements = EngineOptions::kPieceAlignment;
    options.choose = kAllOpen;
    options.device_bytes = device_bytes;
    options.host_bytes = host_bytes;
    return options;
  }
  void train(const TrainOptions& given, int ranks) const {
    ::testing::internal::CaptureStderr();
    try {
      ThreadsWorld world(ranks);
      run(world, [&](Communicator& communicator) { Trainer(given, communicator).run(); });
    } catch (...) {
      ::testing::internal::GetCapturedStderr();
      throw;
    }
    ::testing::internal::GetCapturedStderr();
  }
  // Takes each way out that is printed, and each pair where two are needed; counts the kinds of them.
  void replay(const TrainOptions& given, int ranks = 1) {
    std::string text;
    try {
      return train(given, ranks);
    } catch (const Error& error) {
      text = error.what();
    }
    const Advice advice = advice_of(text);
    EXPECT_FALSE(advice.device.empty() && advice.below.empty()) << text;
    const std::vector<std::string> nothing{""};
    for (const auto& device : advice.device.empty() ? nothing : advice.device)
      for (const auto& below : advice.below.empty() ? nothing : advice.below) {
        if (below.starts_with("larger budgets") || device.starts_with("a device")) continue;
        TrainOptions changed = given;
        if (!device.empty()) take(device, directory_.path(), changed);
        if (!below.empty()) take(below, directory_.path(), changed);
        EXPECT_NO_THROW(train(changed, ranks)) << device << " | " << below << "\n" << text;
        if (!device.empty()) ++taken_[device.substr(0, 9)];
        if (!below.empty()) ++taken_[below.substr(0, 13)];
      }
  }

  ScratchModel directory_{128, 6, 512, 1000};
  std::map<std::string, int> taken_;
};

TEST_F(WaysOutOfAuto, AllWorkAsTheyArePrinted) {
  for (const std::int64_t device : {1200 * kKiB, 1800 * kKiB, 2 * kMiB, 3 * kMiB})
    for (const std::int64_t host : {64 * kKiB, 4 * kMiB, 14 * kMiB, 64 * kMiB}) {
      replay(options(device, host));
      TrainOptions long_rows = options(device, host);
      long_rows.micro_batch = 16;
      replay(long_rows);
    }
  for (const char* kind : {"--memory ", "--micro-b", "--tile-li", "--memory host", "--nvme-path D"})
    EXPECT_GT(taken_[kind], 0) << kind;
}

TEST_F(WaysOutOfAuto, WorkWithFilesThatAreTooSmall) {
  for (const std::int64_t device : {1800 * kKiB, 4 * kMiB})
    for (const std::int64_t nvme : {1 * kMiB, 8 * kMiB}) {
      TrainOptions small = options(device, 14 * kMiB);
      small.nvme_paths = {directory_.path()};
      small.nvme_bytes = nvme;
      replay(small);
    }
  EXPECT_GT(taken_["--memory nvme"], 0);
}

TEST_F(WaysOutOfAuto, WorkWhereOptionsPlaceSomething) {
  for (const std::int64_t host : {2 * kMiB, 12 * kMiB, 64 * kMiB})
    for (const std::int64_t device : {2 * kMiB, 4 * kMiB, 8 * kMiB}) {
      TrainOptions resident = options(device, host);
      resident.choose.optimizer = false;
      replay(resident);
      TrainOptions deep = options(device, host);
      deep.placement.params = {.host = 0.25};
      deep.choose.params = false;
      deep.choose.activations = false;
      deep.prefetch_bytes = 3 * kMiB;
      deep.choose.prefetch = false;
      replay(deep);
    }
  EXPECT_GT(taken_["leave --o"], 0);
}

TEST_F(WaysOutOfAuto, WorkOnSeveralRanks) {
  for (const int stage : {1, 3}) {
    TrainOptions small = options(1500 * kKiB, 2 * kMiB);
    small.stage = stage;
    replay(small, 2);
  }
  EXPECT_FALSE(taken_.empty());
}

// Accumulating in fp32 takes memory too: a smaller micro-batch alone is no way out here.
TEST_F(WaysOutOfAuto, LeaveOutWhatWouldNotFit) {
  const std::string text = error_text([&] { train(options(2 * kMiB, 64 * kMiB), 1); });
  EXPECT_TRUE(names(text, "For the device: ", "--memory device=3MiB"));
  EXPECT_EQ(text.find("--micro-batch"), std::string::npos) << text;
}

TEST_F(WaysOutOfAuto, OfferNoMoreThanTheMachineHas) {
  RunSetup setup = make_setup(options(kMiB, 64 * kMiB), {});
  RankRoom room = room_of(tier_options(setup.options), {}, 1);
  room.device_bytes = kMiB;
  const auto failed = search_placement(setup, least_to_fill({room}));
  ASSERT_FALSE(failed.fits);
  const std::string text = ways_out(setup, {room}, failed);
  EXPECT_EQ(text.find("--memory device="), std::string::npos) << text;
}

}  // namespace
}  // namespace zeepo
