// A snapshot is of the step at which it was begun, wherever states live and however many steps follow meanwhile.
#include "zeepo/zero/state_snapshot.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "tests/zero/room_rig.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"
#include "zeepo/zero/engine.h"
#include "zeepo/zero/state_values.h"

namespace zeepo {
namespace {

// Weights and moments by name and element, as a snapshot or the engine gives them.
using Values = std::map<std::string, std::vector<float>>;

struct Snapped {
  Snapped(const EngineOptions& options, const std::filesystem::path& files)
      : session(small_session(files)), engine(plain_units({300, 1100}), session.communicator(), options) {
    engine.load([](const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = weight_at(slice.name.size(), begin + static_cast<std::int64_t>(i));
    });
  }
  // Gradients of `value` everywhere.
  void step(float value) {
    engine.expect_rate(0.5);
    engine.begin_micro_step();
    for (std::size_t u = 0; u < 2; ++u) {
      engine.before({u, Visit::Direction::forward}, Engine::Recorded::yes);
      engine.after({u, Visit::Direction::forward});
    }
    const Tensor loss = Tensor::from<float>(std::vector{1.0f}, {1});
    engine.begin_backward(loss);
    for (std::size_t u = 2; u-- > 0;) {
      engine.before({u, Visit::Direction::backward});
      for (std::size_t p = 0; p < 2; ++p) {
        const GradientTarget to = engine.gradient({u, p});
        launch([&](auto& s) { fill(s, to.tensor.view(), value); });
      }
      engine.after({u, Visit::Direction::backward});
    }
    engine.end_micro_step();
    engine.step(0.5);
  }
  Values weights() {
    Values values;
    StateIo& io = engine.settled_io();
    for (const WeightSlice& slice : io.slices()) {
      auto& all = values[slice.name];
      all.resize(static_cast<std::size_t>(slice.shape.elements()));
      io.read(slice.name, 0, all);
    }
    return values;
  }
  // Collects the weights that the snapshot hands out.
  void begin_snapshot() {
    taken.clear();
    engine.snapshot().begin([this](std::size_t part, const StateViews& states, const View& param) {
      const std::lock_guard lock(mutex);
      for (const auto& slice : engine.snapshot().parts()[part].slices) {
        auto& all = taken[slice.name];
        all.resize(static_cast<std::size_t>(slice.shape.elements()));
        load_weights(
            param, states.remainder, slice.at,
            std::span(all).subspan(static_cast<std::size_t>(slice.begin), static_cast<std::size_t>(slice.elements)));
      }
    });
  }

  Session session;
  Engine engine;
  std::mutex mutex;
  Values taken;
};

class Snapshots : public testing::TestWithParam<std::tuple<DType, Shares, Shares, StepPhase>> {};

TEST_P(Snapshots, AreOfTheStepAtWhichTheyWereBegun) {
  const auto& [dtype, params, optimizer, phase] = GetParam();
  const TestDirectory files;
  EngineOptions options{.dtype = dtype};
  options.placement.params = params;
  options.placement.optimizer = optimizer;
  options.piece_elements = EngineOptions::kPieceAlignment;
  options.step_phase = phase;
  options.clip = 0;
  options.snapshot_bytes = 1;  // one buffer: parts wait for each other
  // First without a snapshot, settled where the other run begins one; that run does not settle.
  std::vector<Values> begun, later;
  {
    Snapped run(options, files.path());
    for (int life = 0; life < 2; ++life) {
      run.step(0.25f);
      begun.push_back(run.weights());
      for (int i = 0; i < 3; ++i) run.step(0.5f);
      later.push_back(run.weights());
    }
  }
  Snapped run(options, files.path());
  for (std::size_t life = 0; life < 2; ++life) {
    run.step(0.25f);
    run.begin_snapshot();
    for (int i = 0; i < 3; ++i) run.step(0.5f);
    run.engine.settle();
    run.engine.snapshot().finish();
    EXPECT_TRUE(run.engine.snapshot().finished());
    EXPECT_TRUE(run.taken == begun[life]) << life;
    EXPECT_TRUE(run.weights() == later[life]) << life;
  }
}

INSTANTIATE_TEST_SUITE_P(Places, Snapshots,
                         testing::Combine(testing::Values(DType::f32, DType::bf16),
                                          testing::Values(Shares{}, Shares{.host = 1}, Shares{.nvme = 1}),
                                          testing::Values(Shares{}, Shares{.host = 1}, Shares{.nvme = 1},
                                                          Shares{.host = 0.5, .nvme = 0.5}),
                                          testing::Values(StepPhase::after_backward, StepPhase::in_backward)));

TEST(Snapshot, OneAtATime) {
  const TestDirectory files;
  EngineOptions options;
  options.snapshot_bytes = 1;
  Snapped run(options, files.path());
  run.step(1);
  std::mutex gate;
  gate.lock();
  run.engine.snapshot().begin([&](std::size_t, const StateViews&, const View&) { const std::lock_guard lock(gate); });
  EXPECT_TRUE(names(error_text([&] { run.engine.snapshot().begin({}); }), "under way"));
  gate.unlock();
  run.engine.snapshot().cancel();
  EXPECT_TRUE(run.engine.snapshot().finished());
}

}  // namespace
}  // namespace zeepo
