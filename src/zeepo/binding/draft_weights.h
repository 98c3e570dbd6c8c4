// A coarse copy of the weights that a pass would have to fetch: a model drafts with it what a pass of its own weights
// then checks.
//
// The copy has the units that are not always whole on the device; the others serve both. Every rank keeps all of it, so
// that ranks draft without talking to each other. Calls come from the rank's thread, with its Device in scope.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "zeepo/zero/engine.h"

namespace zeepo {

class DraftWeights {
 public:
  // Of the units and placement of `exact`, stored as `type` in `place`.
  DraftWeights(const Engine& exact, CodedType type, Place place);

  // Whether there was anything to copy.
  bool any() const { return engine_ != nullptr; }
  void load(const WeightSource& source, const CodedSource& codes);
  // A pass with the copy.
  void begin();
  void end(Engine::Then then);
  void abandon();
  void before(const Visit& visit);
  void after(const Visit& visit);
  // By the number that `exact` knows it by. Undefined where the parameter is not copied.
  Tensor parameter(const ParameterId& id) const;
  bool parameter_is_copied(const ParameterId& id) const { return unit_of_[id.unit].has_value(); }
  WeightStream::Stored stored(const ParameterId& id) const;

 private:
  std::vector<std::optional<std::size_t>> unit_of_;  // of each unit of the exact weights: that of the copy
  std::unique_ptr<Engine> engine_;                   // of the copied units alone, with the same visits
};

}  // namespace zeepo
