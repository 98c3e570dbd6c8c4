// The bytes of a shard, without an engine: pieces come to who steps them and go back, wherever they live.
#include "zeepo/zero/state_store.h"

#include <gtest/gtest.h>

#include "tests/support/test_directory.h"
#include "tests/zero/room_rig.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"
#include "zeepo/zero/host_windows.h"
#include "zeepo/zero/piece_buffers.h"

namespace zeepo {
namespace {

struct Placed {
  const char* name;
  Shares params, optimizer;
  StepSide side;
};
const Placed kPlaced[] = {
    {"device", {}, {}, StepSide::host},
    {"optimizer in host memory", {}, {.host = 1}, StepSide::host},
    {"all in host memory", {.host = 1}, {.host = 1}, StepSide::host},
    {"all in files", {.nvme = 1}, {.nvme = 1}, StepSide::host},
    {"mixed", {.host = 0.5}, {.host = 0.4, .nvme = 0.3}, StepSide::host},
    {"parameters in host memory, state on the device", {.host = 1}, {}, StepSide::host},
    {"in host memory, stepped by the device", {.host = 1}, {.host = 1}, StepSide::device},
    {"in files, stepped by the device", {.nvme = 1}, {.nvme = 1}, StepSide::device},
};

class StateRoom : public testing::TestWithParam<Placed> {
 protected:
  StateRoom() : session_(small_session(files_.path())), units_(plain_units({2500, 2100, 30})) {
    EngineOptions options{.dtype = DType::bf16, .stage = 3};
    options.piece_elements = EngineOptions::kPieceAlignment;
    options.pieces_under_way = 2;
    options.placement.params = GetParam().params;
    options.placement.optimizer = GetParam().optimizer;
    options.step_below_on = GetParam().side;
    plan_ = plan_states(units_, options, {});
  }
  // Every range that lies in one piece, of all units.
  template <class F>
  void for_ranges(F&& f) {
    for (std::size_t u = 0; u < plan_.units.size(); ++u) {
      const Extent& own = plan_.units[u].own;
      for (std::int64_t begin = own.begin; begin < own.end; begin += EngineOptions::kPieceAlignment)
        f(u, Extent{begin, std::min(begin + EngineOptions::kPieceAlignment, own.end)});
    }
  }
  void fill(StateStore& store, HostWindows& windows) {
    store.clear_device_state();
    for_ranges([&](std::size_t u, const Extent& range) {
      const HostWindow window = windows.open(u, range, HostWindows::Access::fresh);
      for (std::int64_t i = 0; i < range.elements(); ++i) {
        window.param.as<bf16>()[i] = from_float<bf16>(weight_at(u, range.begin + i));
        if (window.states.remainder) window.states.remainder.as<std::int16_t>()[i] = static_cast<std::int16_t>(i % 777);
      }
      windows.close(window);
    });
  }

  const TestDirectory files_;
  Session session_;
  UnitPlan units_;
  StatePlan plan_;
};

TEST_P(StateRoom, WindowsGiveBackWhatWasPutThere) {
  StateStore store(units_, plan_);
  HostWindows windows(units_, plan_, store);
  fill(store, windows);
  for_ranges([&](std::size_t u, const Extent& range) {
    const HostWindow window = windows.open(u, range, HostWindows::Access::read);
    for (std::int64_t i = 0; i < range.elements(); ++i) {
      ASSERT_EQ(window.param.as<bf16>()[i].bits, from_float<bf16>(weight_at(u, range.begin + i)).bits);
      ASSERT_EQ(window.states.remainder.as<std::int16_t>()[i], i % 777);
    }
  });
}

// As a step does: each piece is opened by its stepper, changed, and closed; twice, in the plan's order.
TEST_P(StateRoom, PiecesComeToTheirStepperAndGoBack) {
  StateStore store(units_, plan_);
  HostWindows windows(units_, plan_, store);
  fill(store, windows);
  PieceBuffers buffers(units_, plan_, store);
  std::vector<SteppedBy> sides;
  for (const PieceId& id : plan_.deferred) sides.push_back(plan_.piece(id).stepped_by);
  buffers.set_order(plan_.deferred, sides);
  std::int64_t passing = 0;
  for (std::size_t i = 0; i < sides.size(); ++i)
    if (slot_parts(plan_, plan_.deferred[i], sides[i]).bytes > 0) ++passing;
  const auto step = [&](const PieceId& id, SteppedBy by) {
    const OpenPiece open = buffers.open(id, by);
    ASSERT_EQ(open.param.elements(), plan_.piece(id).extent.elements());
    for (const Moment& moment : open.states.moments)
      for (std::int64_t i = 0; i < open.param.elements(); ++i) moment.values.as<float>()[i] += 1;
    for (std::int64_t i = 0; i < open.param.elements(); ++i) ++open.param.as<bf16>()[i].bits;
    buffers.close(id, open);
  };
  for (std::size_t u = 0; u < plan_.units.size(); ++u) {
    if (plan_.units[u].gradients != GradientsKept::in_pieces) continue;
    const FlatPart none = zeros(plan_.units[u].own, plan_.gradient_dtype(), Kind::working);
    for (auto& leaving : store.keep_sum(u, none.tensor)) leaving.done.wait();
  }
  for (int round = 0; round < 2; ++round) {
    for (std::size_t u = 0; u < plan_.units.size(); ++u)
      for (std::size_t i = 0; i < plan_.units[u].pieces.size(); ++i)
        if (!is_deferred(plan_.units[u].pieces[i].stepped_by)) step({u, i}, SteppedBy::device_at_once);
    buffers.expect_gradients(passing);
    for (std::size_t i = 0; i < sides.size(); ++i) step(plan_.deferred[i], sides[i]);
    session_.lower().drain();
  }
  store.drain();
  for_ranges([&](std::size_t u, const Extent& range) {
    const HostWindow window = windows.open(u, range, HostWindows::Access::read);
    for (std::int64_t i = 0; i < range.elements(); ++i)
      ASSERT_EQ(window.param.as<bf16>()[i].bits, from_float<bf16>(weight_at(u, range.begin + i)).bits + 2)
          << GetParam().name << ", unit " << u << ", element " << range.begin + i;
    for (const Moment& moment : window.states.moments)
      for (std::int64_t i = 0; i < range.elements(); ++i) ASSERT_EQ(moment.values.as<float>()[i], 2);
  });
}

// Gradients that live with their pieces: kept in parts, brought together again.
TEST_P(StateRoom, GradientSumsAreTakenApartAndBroughtTogether) {
  StateStore store(units_, plan_);
  for (std::size_t u = 0; u < plan_.units.size(); ++u) {
    if (plan_.units[u].gradients != GradientsKept::in_pieces) continue;
    const std::int64_t n = plan_.units[u].own.elements();
    const Tensor sum({n}, plan_.gradient_dtype(), Kind::working), back({n}, plan_.gradient_dtype(), Kind::working);
    for (std::int64_t i = 0; i < n; ++i) sum.view().as<bf16>()[i] = from_float<bf16>(weight_at(u, i));
    for (auto& leaving : store.keep_sum(u, sum)) leaving.done.wait();
    for (auto& arriving : store.bring_sum(u, back)) arriving.wait();
    EXPECT_EQ(back.to_floats(), sum.to_floats()) << GetParam().name;
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, StateRoom, testing::ValuesIn(kPlaced),
                         [](const auto& placed) { return std::to_string(placed.index); });

}  // namespace
}  // namespace zeepo
