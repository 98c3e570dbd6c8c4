// No rank holds the model: what it keeps is its share, and what it holds for the moment does not grow with depth.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/test_directory.h"
#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/binding/model_units.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/trainer.h"
#include "zeepo/zero/norm_layout.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kHidden = 128, kVocab = 512, kSeqLen = 16;

std::int64_t width_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

// A model of random weights in a directory of its own, and some tokens.
class Scratch {
 public:
  explicit Scratch(std::int64_t layers) {
    const Json config = {{"model_type", "gpt2"}, {"architectures", {"GPT2LMHeadModel"}},
                         {"n_embd", kHidden},    {"n_head", 4},
                         {"n_layer", layers},    {"n_positions", 64},
                         {"vocab_size", kVocab}};
    directory_.write("config.json", config.dump());
    std::vector<std::uint16_t> tokens;
    for (std::size_t i = 0; i < 1000; ++i) tokens.push_back(static_cast<std::uint16_t>(i * i % kVocab));
    directory_.write("tokens.bin", {reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size()});
  }
  const std::filesystem::path& directory() const { return directory_.path(); }

 private:
  TestDirectory directory_;
};

struct Peaks {
  Json plan;                // rank 0's, by kind
  std::vector<Json> ranks;  // what each rank has used, by kind
  std::int64_t params = 0;
  std::int64_t kept(std::size_t r) const {
    return ranks[r].at("params").get<std::int64_t>() + ranks[r].at("grads").get<std::int64_t>() +
           ranks[r].at("optimizer").get<std::int64_t>();
  }
  std::int64_t working(std::size_t r = 0) const { return ranks[r].at("working"); }
};

Peaks train(const Scratch& scratch, TrainOptions options, int ranks) {
  options.model = scratch.directory();
  options.data = scratch.directory() / "tokens.bin";
  options.from_scratch = true;
  options.seq_len = kSeqLen;
  options.steps = 2;  // the second as all later ones
  options.threads = 1;
  options.device_bytes = std::int64_t{1} << 28;
  options.log = (scratch.directory() / "log.jsonl").string();
  testing::internal::CaptureStderr();
  ThreadsWorld world(ranks);
  run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
  testing::internal::GetCapturedStderr();
  std::istringstream lines(read_text(options.log));
  Peaks peaks;
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    if (event.at("event") == "plan") peaks.plan = event.at("device").at("bytes");
    if (event.at("event") != "summary") continue;
    peaks.params = event.at("params");
    for (const auto& rank : event.at("ranks")) peaks.ranks.push_back(rank.at("peak_bytes").at("device"));
  }
  return peaks;
}

// Bytes of a model's units, gathered.
struct UnitBytes {
  UnitBytes(const Scratch& scratch, DType dtype, int ranks) {
    const auto model = make_model(load_config(scratch.directory()));
    const UnitPlan plan = plan_units(*model);
    for (const auto& unit : plan.units) {
      const std::int64_t shard = shard_elements(unit.elements, ranks, Unit::kAlignment);
      units.push_back(shard * ranks * width_of(dtype));
    }
    const NormLayout norm = norm_layout(plan_states(plan, {.dtype = dtype, .stage = 3}, {0, ranks, ranks == 1}));
    const auto numbers = ranks * norm.rank_nodes + norm.blocks + norm.table_elements;
    norm_partials = numbers * width_of(DType::f32);
    for (const auto& visit : plan.visits) {
      std::int64_t bytes = 0;
      for (const std::size_t unit : visit.units) bytes += units[unit];
      largest_visit = std::max(largest_visit, bytes);
    }
    embedding = units.front();
    block = units[1];
  }
  std::vector<std::int64_t> units;
  std::int64_t embedding, block, largest_visit = 0, norm_partials = 0;
};

TEST(RankMemory, KeepsItsShareAtStage3) {
  const Scratch scratch(8);
  for (const DType dtype : {DType::bf16, DType::f32, DType::f16})
    for (const int ranks : {1, 2, 4, 7}) {
      TrainOptions options;
      options.dtype = dtype;
      options.stage = 3;
      const Peaks peaks = train(scratch, options, ranks);
      const double psi = static_cast<double>(peaks.params);
      // bf16: 2 + 2 + 8 and the other half of the master weight; fp32 is its own master; fp16 has one beside it.
      const double bytes = (dtype == DType::bf16 ? 14 : 16) * psi / ranks;
      const double padding = 16.0 * Unit::kAlignment * 10;  // a piece in each of ten units
      for (std::size_t r = 0; r < peaks.ranks.size(); ++r)
        EXPECT_LE(static_cast<double>(peaks.kept(r)), 1.01 * bytes + padding)
            << name_of(dtype) << ", rank " << r << " of " << ranks;
    }
}

// What is there for the moment: prefetched units, those of the visit at hand, the gradients being written (the tied
// embedding's from the head on, and a block's), one unit's gradients on their way with the scratch they are exchanged
// in, and the head's logits. Of a micro-step after the first also this rank's part of the sum to add, in fp32.
std::int64_t working_limit(const UnitBytes& bytes, DType dtype, const TrainOptions& options, int ranks) {
  const std::int64_t width = width_of(dtype);
  const std::int64_t gathered = options.prefetch_bytes + bytes.largest_visit;
  const std::int64_t written = bytes.embedding + bytes.block;
  const std::int64_t largest = *std::max_element(bytes.units.begin(), bytes.units.end());
  const std::int64_t reduced = 2 * largest + (options.grad_accum > 1 ? largest / width * 4 / ranks : 0);
  const std::int64_t logits = options.micro_batch * kSeqLen * kVocab * width;
  const std::int64_t control = 4096;  // the loss, the norms of blocks
  return gathered + written + reduced + logits + control;
}

TEST(WorkingMemory, IsBoundedByThePrefetchAndDoesNotGrowWithDepth) {
  const Scratch shallow(4), middle(8), deep(16);
  constexpr int kRanks = 3;
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const std::int64_t accumulation : {1, 2})
      for (const std::int64_t units_ahead : {0, 2}) {
        if (dtype == DType::f32 && units_ahead == 0) continue;
        TrainOptions options;
        options.dtype = dtype;
        options.stage = 3;
        options.grad_accum = accumulation;
        const UnitBytes bytes(shallow, dtype, kRanks);
        options.prefetch_bytes = units_ahead * bytes.block;
        const auto what = fmt::format("{}, {} micro-steps, {} ahead", name_of(dtype), accumulation, units_ahead);
        std::vector<std::int64_t> working;
        for (const Scratch* scratch : {&shallow, &middle, &deep}) {
          const Peaks peaks = train(*scratch, options, kRanks);
          // The norm alone has a few bytes for every unit.
          working.push_back(peaks.working() - UnitBytes(*scratch, dtype, kRanks).norm_partials);
          EXPECT_LE(peaks.working(), working_limit(bytes, dtype, options, kRanks)) << what;
          if (scratch == &deep) {
            EXPECT_LT(2 * peaks.working(), peaks.params * width_of(dtype)) << what;
          }
        }
        EXPECT_EQ(working[1], working[0]) << what;
        EXPECT_EQ(working[2], working[0]) << what;
      }
}

TEST(WorkingMemory, IsWhatTheDryPassSaid) {
  const Scratch scratch(4);
  for (const int stage : {0, 1, 2, 3})
    for (const std::int64_t accumulation : {1, 2})
      for (const std::int64_t prefetch : {std::int64_t{0}, std::int64_t{1} << 20, std::int64_t{1} << 28}) {
        TrainOptions options;
        options.dtype = DType::bf16;
        options.stage = stage;
        options.grad_accum = accumulation;
        options.prefetch_bytes = prefetch;
        const Peaks peaks = train(scratch, options, 3);
        for (std::size_t r = 0; r < 3; ++r)
          EXPECT_EQ(peaks.ranks[r], peaks.plan)
              << "stage " << stage << ", " << accumulation << " micro-steps, prefetch " << prefetch << ", rank " << r;
      }
}

}  // namespace
}  // namespace zeepo
