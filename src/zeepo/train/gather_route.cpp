#include "zeepo/train/gather_route.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>

#include "zeepo/base/error.h"
#include "zeepo/binding/model_units.h"
#include "zeepo/comm/rank_sum.h"
#include "zeepo/comm/wire_collectives.h"
#include "zeepo/zero/agreement.h"

namespace zeepo {
namespace {

constexpr std::int64_t kFirstPart = 16 << 10, kMostBytes = 16 << 20;  // of a rank; of all ranks together
constexpr double kSecondsAWay = 0.1;                                  // for a size
constexpr int kMostTimes = 5;
constexpr double kGain = 0.9;

// What a rank sends of a unit of usual size.
std::int64_t part_of_a_unit(const RunSetup& setup) {
  const ModelUnits plan = plan_units(*setup.model, setup.options.blocks_per_unit);
  std::int64_t elements = 0;
  for (const Unit& unit : plan.units) elements += unit.elements;
  const auto units = static_cast<std::int64_t>(std::max<std::size_t>(1, plan.units.size()));
  return static_cast<std::int64_t>(
      message_bytes(setup.options.wire.gather, setup.options.dtype, elements / units / setup.ranks.ranks));
}

class Timing {
 public:
  Timing(Communicator& communicator, const NodeMap& nodes)
      : communicator_(communicator),
        direct_(wire_plan(nodes, communicator.rank(), GatherWay::direct)),
        ring_(wire_plan(nodes, communicator.rank(), GatherWay::ring)) {}

  RunSetup::TimedGathers of(std::int64_t part_bytes) {
    bytes_.resize(static_cast<std::size_t>(part_bytes) * static_cast<std::size_t>(communicator_.size()));
    return {part_bytes, seconds(direct_), seconds(ring_)};
  }

 private:
  // The least of some times, the first left out: it may make connections. Each is the slowest rank's, so that all ranks
  // count the same times and stop together.
  double seconds(const WirePlan& plan) {
    double spent = slowest(plan), least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kMostTimes && (i == 0 || spent < kSecondsAWay); ++i) {
      const double taken = slowest(plan);
      least = std::min(least, taken);
      spent += taken;
    }
    return least;
  }

  double slowest(const WirePlan& plan) {
    using Clock = std::chrono::steady_clock;
    (void)gather_texts(communicator_, "");  // all start together
    const auto start = Clock::now();
    const auto all = static_cast<std::int64_t>(bytes_.size());
    const View full{bytes_.data(), DType::u8, {all}};
    gather_by_messages(communicator_, stream_, plan, {}, part_of(full, plan.rank, communicator_.size()), full,
                       {"the time of a gather", 0});
    const double own = std::chrono::duration<double>(Clock::now() - start).count();
    double most = 0;
    for (const std::string& taken : gather_texts(communicator_, fmt::format("{}", own)))
      most = std::max(most, std::stod(taken));
    return most;
  }

  Communicator& communicator_;
  WirePlan direct_, ring_;
  ThreadPool pool_{1};
  CpuStream stream_{pool_};
  std::vector<std::byte> bytes_;
};

// At the size of a unit, where the time allows that; else at the largest that it allows.
RunSetup::TimedGathers time_gathers(Communicator& communicator, const NodeMap& nodes, std::int64_t part_bytes) {
  const std::int64_t most = std::max<std::int64_t>(1, std::min(part_bytes, kMostBytes / communicator.size()));
  Timing timing(communicator, nodes);
  const RunSetup::TimedGathers small = timing.of(std::min(kFirstPart, most));
  const double slower = std::max(small.direct_seconds, small.ring_seconds);
  const double times = kSecondsAWay / 3 / std::max(slower, 1e-9);
  if (times < 2) return small;
  const auto allowed = static_cast<double>(small.part_bytes) * times;
  const auto part = allowed < static_cast<double>(most) ? static_cast<std::int64_t>(allowed) : most;
  return part > small.part_bytes ? timing.of(part) : small;
}

}  // namespace

bool ring_is_faster(const RunSetup::TimedGathers& timed) {
  return timed.part_bytes > 0 && timed.ring_seconds < kGain * timed.direct_seconds;
}

RunSetup choose_gather_route(const RunSetup& setup, Communicator& communicator) {
  constexpr int kFewestNodes = 3;  // around two is straight to the other
  const TrainOptions& options = setup.options;
  if (options.wire.gather_way != GatherWay::automatic) return setup;
  RunSetup chosen = setup;
  chosen.options.wire.gather_way = GatherWay::direct;
  if (options.backend == Backend::cuda || options.no_communication) return chosen;
  const NodeMap nodes = NodeMap::of(communicator, options.wire.node_size);
  if (nodes.nodes() < kFewestNodes) return chosen;
  chosen.timed_gathers = time_gathers(communicator, nodes, part_of_a_unit(setup));
  if (ring_is_faster(chosen.timed_gathers)) chosen.options.wire.gather_way = GatherWay::ring;
  return chosen;
}

}  // namespace zeepo
