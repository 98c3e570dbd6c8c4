#include "zeepo/binding/draft_weights.h"

#include "zeepo/zero/session.h"

namespace zeepo {

DraftWeights::DraftWeights(const Engine& exact, CodedType type, Place place) : unit_of_(exact.units().units.size()) {
  UnitPlan copied;
  for (std::size_t u = 0; u < unit_of_.size(); ++u) {
    if (exact.plan().units[u].params_whole) continue;
    unit_of_[u] = copied.units.size();
    copied.units.push_back(exact.units().units[u]);
  }
  if (copied.units.empty()) return;
  for (UnitVisit visit : exact.units().visits) {
    const std::vector<std::size_t> units = std::exchange(visit.units, {});
    for (const std::size_t u : units)
      if (unit_of_[u]) visit.units.push_back(*unit_of_[u]);
    copied.visits.push_back(std::move(visit));
  }
  EngineOptions options = exact.plan().options;
  options.stage = 0;
  options.stored_as = type;
  options.placement.params = Shares::all_in(place);
  options.placement.cache = CachePolicy::fixed;
  engine_ = std::make_unique<Engine>(std::move(copied), alone(), options);
}

void DraftWeights::load(const WeightSource& source, const CodedSource& codes) {
  if (any()) engine_->load(source, nullptr, codes);
}

void DraftWeights::begin() { engine_->begin_inference(); }
void DraftWeights::end(Engine::Then then) { engine_->end_inference(then); }
void DraftWeights::abandon() { engine_->abandon_pass(); }
void DraftWeights::before(const Visit& visit) { engine_->before(visit); }
void DraftWeights::after(const Visit& visit) { engine_->after(visit); }

Tensor DraftWeights::parameter(const ParameterId& id) const {
  const auto unit = unit_of_[id.unit];
  return unit ? engine_->parameter({*unit, id.index}) : Tensor{};
}

WeightStream::Stored DraftWeights::stored(const ParameterId& id) const {
  const auto unit = unit_of_[id.unit];
  return unit ? stored_parameter(*engine_, {*unit, id.index}) : WeightStream::Stored{};
}

}  // namespace zeepo
