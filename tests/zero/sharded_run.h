// Small models trained on ranks as threads, each rank on its own rows of one batch.
//
// A model is a Module with `Tensor loss(x, targets, pass)`; `pass` is the number of the step, so that a model may take
// another way through its modules each time.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/base/rng.h"
#include "zeepo/binding/model_engine.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/nn/layers.h"
#include "zeepo/ops/activation.h"
#include "zeepo/zero/session.h"

namespace zeepo {

inline constexpr std::int64_t kIn = 5, kHidden = 37, kOut = 3;

inline const OptimizerOptions kPlainSgd{.type = OptimizerType::sgd, .momentum = 0, .weight_decay = 0};
inline const OptimizerOptions kMomentumSgd{.type = OptimizerType::sgd, .momentum = 0.9f, .weight_decay = 0.1f};

// One of many alike, with activations worth recomputing or keeping elsewhere.
class GeluBlock : public Module {
 public:
  GeluBlock(std::int64_t in, std::int64_t out) : linear_(child<Linear>("linear", in, out)) {
    mark_unit();
    mark_checkpointable();
  }
  Tensor forward(const Tensor& x) override { return gelu(linear_(x)); }

 private:
  Linear& linear_;
};

struct ShardedRun {
  int ranks = 1;
  EngineOptions options = {};
  std::int64_t rows = 2;  // of a rank in a micro-step
  int steps = 4;
  double lr = 0.05;
  int poisoned_rank = -1, poisoned_step = -1;  // whose data hold an infinity
  std::int64_t device_bytes = 1 << 20;
  LowerTiers::Options lower = {};
  bool infers = true;               // after every other step, a pass without a backward pass
  std::vector<Depths> depths = {};  // one after another after each step, if any
};

// With memory in every tier, and states in pieces as small as they may be.
inline ShardedRun run_in_tiers(int ranks, const EngineOptions& options, const std::filesystem::path& files) {
  ShardedRun run{.ranks = ranks};
  run.options = options;
  run.options.piece_elements = EngineOptions::kPieceAlignment;
  run.options.pieces_under_way = 2;
  run.rows = 5;
  run.device_bytes = 64 << 20;
  run.lower = {.host_bytes = 64 << 20, .nvme_paths = {files}, .nvme_bytes = 64 << 20};
  run.lower.staging_bytes = 1 << 18;
  return run;
}

// The same, everything sharded, with clipping and a loss scale that fp16 can lower.
inline ShardedRun clipped_run_in_tiers(int ranks, DType dtype, std::int64_t accumulation,
                                       const std::filesystem::path& files) {
  ShardedRun run = run_in_tiers(ranks,
                                {.dtype = dtype,
                                 .stage = 3,
                                 .prefetch_bytes = 1 << 20,
                                 .accumulation = accumulation,
                                 .clip = 0.5f,
                                 .loss_scale = {.initial = 128}},
                                files);
  run.steps = 3;
  return run;
}

// What one rank has seen.
struct ShardedResult {
  std::vector<float> losses, norms, scales;
  std::vector<bool> skipped;
  std::vector<std::string> hashes;  // before the first step and after each
  std::map<std::string, std::vector<float>> weights;
  std::vector<float> inferred;  // this rank's own
  CommBytes sent;
};

// Each weight by its name and index, the same in every run.
inline void fill_weights(const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
  const RngKey key = mix(RngKey{7}, slice.name);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = 0.4f * normal(key, static_cast<std::uint64_t>(begin) + i);
}

inline std::vector<float> first_weights(const WeightSlice& slice) {
  std::vector<float> values(static_cast<std::size_t>(slice.shape.elements()));
  fill_weights(slice, 0, values);
  return values;
}

inline Tensor of_dtype(DType dtype, const std::vector<float>& values, Shape shape) {
  const auto narrowed = [&]<class T>(T) {
    std::vector<T> narrow;
    for (const float value : values) narrow.push_back(from_float<T>(value));
    return Tensor::from<T>(narrow, shape);
  };
  if (dtype == DType::bf16) return narrowed(bf16{});
  if (dtype == DType::f16) return narrowed(f16{});
  return Tensor::from<float>(values, shape);
}

// Rows [first, first + count) of a long list of samples.
struct Rows {
  Rows(std::int64_t first, std::int64_t count) {
    for (std::int64_t row = first; row < first + count; ++row) {
      for (std::int64_t i = 0; i < kIn; ++i) x.push_back(normal(RngKey{11}, static_cast<std::uint64_t>(row * kIn + i)));
      targets.push_back(static_cast<std::int32_t>(row * 7 % 5 % kOut));
    }
  }
  std::vector<float> x;
  std::vector<std::int32_t> targets;
};

template <class Model>
Tensor loss_of(Model& model, const Rows& rows, DType dtype, std::int64_t pass) {
  const auto count = static_cast<std::int64_t>(rows.targets.size());
  return model.loss(of_dtype(dtype, rows.x, {count, kIn}), Tensor::from<std::int32_t>(rows.targets, {count}), pass);
}

inline void read_all(ModelEngine& engine, std::map<std::string, std::vector<float>>& weights) {
  for (const auto& slice : engine.slices()) {
    auto& values = weights[slice.name];
    values.resize(static_cast<std::size_t>(slice.shape.elements()));
    engine.read(slice.name, 0, values);
  }
}

template <class Model>
ShardedResult train_rank(const ShardedRun& run, Communicator& communicator) {
  Session session({.threads = 1, .device_bytes = run.device_bytes, .lower = run.lower}, communicator);
  Model model;
  ModelEngine engine(model, communicator, run.options);
  engine.load(fill_weights);
  ShardedResult result;
  result.hashes.push_back(engine.weights_hash());
  const std::int64_t accumulation = run.options.accumulation;
  for (int step = 0; step < run.steps; ++step) {
    engine.expect_rate(run.lr);
    for (std::int64_t m = 0; m < accumulation; ++m) {
      Rows rows(((step * accumulation + m) * run.ranks + communicator.rank()) * run.rows, run.rows);
      if (step == run.poisoned_step && communicator.rank() == run.poisoned_rank)
        rows.x[2] = std::numeric_limits<float>::infinity();
      engine.micro_step([&] { return loss_of(model, rows, run.options.dtype, step); });
    }
    const StepResult done = engine.step(run.lr);
    if (!run.depths.empty()) engine.set_depths(run.depths[static_cast<std::size_t>(step) % run.depths.size()]);
    result.losses.push_back(done.loss);
    result.norms.push_back(done.grad_norm);
    result.scales.push_back(done.loss_scale);
    result.skipped.push_back(done.skipped);
    if (run.infers && step % 2 == 0)
      engine.infer([&] {
        result.inferred.push_back(loss_of(model, Rows(communicator.rank(), 3), run.options.dtype, step / 2 + 1).item());
      });
    result.hashes.push_back(engine.weights_hash());
  }
  read_all(engine, result.weights);
  result.sent = engine.moved().all().sent;
  return result;
}

// Equal only where the bits are; a NaN is equal to itself.
inline std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> result;
  for (const float value : values) result.push_back(std::bit_cast<std::uint32_t>(value));
  return result;
}

// Trains on all ranks and checks that they agree. The results by rank.
template <class Model>
std::vector<ShardedResult> train_ranks(const ShardedRun& run) {
  std::vector<ShardedResult> results(static_cast<std::size_t>(run.ranks));
  ThreadsWorld world(run.ranks);
  zeepo::run(world, [&](Communicator& communicator) {
    results[static_cast<std::size_t>(communicator.rank())] = train_rank<Model>(run, communicator);
  });
  for (std::size_t rank = 1; rank < results.size(); ++rank) {
    EXPECT_EQ(bits(results[rank].losses), bits(results[0].losses)) << "rank " << rank;
    EXPECT_EQ(bits(results[rank].norms), bits(results[0].norms)) << "rank " << rank;
    EXPECT_EQ(results[rank].scales, results[0].scales) << "rank " << rank;
    EXPECT_EQ(results[rank].skipped, results[0].skipped) << "rank " << rank;
    EXPECT_EQ(results[rank].hashes, results[0].hashes) << "rank " << rank;
    EXPECT_EQ(results[rank].weights, results[0].weights) << "rank " << rank;
  }
  return results;
}

inline void expect_same_bits(const std::vector<ShardedResult>& run, const std::vector<ShardedResult>& reference,
                             const std::string& what) {
  EXPECT_EQ(bits(run[0].losses), bits(reference[0].losses)) << what;
  EXPECT_EQ(bits(run[0].norms), bits(reference[0].norms)) << what;
  EXPECT_EQ(run[0].hashes, reference[0].hashes) << what;
  EXPECT_EQ(run[0].weights, reference[0].weights) << what;
  for (std::size_t rank = 0; rank < run.size(); ++rank)
    EXPECT_EQ(run[rank].inferred, reference[rank].inferred) << what << ", inference of rank " << rank;
}

inline void expect_near(const ShardedResult& run, const ShardedResult& reference, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(run.losses.size(), reference.losses.size()) << what;
  for (std::size_t i = 0; i < run.losses.size(); ++i) {
    EXPECT_NEAR(run.losses[i], reference.losses[i], tolerance) << what << ", loss of step " << i;
    EXPECT_NEAR(run.norms[i], reference.norms[i], tolerance * (1 + reference.norms[i])) << what << ", norm " << i;
  }
  for (const auto& [name, values] : reference.weights)
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(run.weights.at(name)[i], values[i], tolerance) << what << ", " << name << "[" << i << "]";
}

}  // namespace zeepo
