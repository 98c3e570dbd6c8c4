// Weights by name and range, in and out: from a source, to a reader, as a hash. Piece by piece: no rank ever holds a
// copy of the model for it.
//
// Reading is a collective: every rank asks for the same. The engine is settled before.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "zeepo/zero/collectives.h"
#include "zeepo/zero/host_windows.h"
#include "zeepo/zero/weight_places.h"

namespace zeepo {

// Some values of a weight, from element `begin` on.
using WeightLook = std::function<void(const std::string& name, std::int64_t begin, std::span<const float> values)>;

class StateIo {
 public:
  StateIo(const UnitPlan& units, const StatePlan& plan, StateStore& store, Collectives& collectives);

  // All weights, sorted by name.
  std::vector<WeightSlice> slices() const;
  // Sets every weight and, from their source or to zero, the optimizer's moments. Each rank asks for what it keeps.
  // Coded rows come from `codes` where there are some.
  void load(const WeightSource& source, const MomentSource* moments = nullptr, const CodedSource& codes = {});
  // The exact fp32 values of elements [begin, begin + out.size()) of a weight.
  void read(const std::string& name, std::int64_t begin, std::span<float> out);
  // Of all exact weights in name order; `look` sees each part that is read.
  std::string hash(const WeightLook& look = {});
  // Takes for a moment the most device memory that reading does: for a dry pass.
  void take_room_to_read() const;

 private:
  void load_unit(std::size_t unit, const WeightSource& source, const MomentSource* moments);
  void load_coded(std::size_t unit, const WeightSource& source, const CodedSource& codes);
  void encode_rows(std::size_t unit, const Extent& chunk, const WeightSource& source, const CodedSource& codes,
                   std::byte* rows);
  void encode_exact(std::size_t unit, const WeightSource& source, std::byte* stored);
  template <class Source>
  void collect(std::size_t unit, const Extent& chunk, const Source& source);
  void share_whole(std::size_t unit);
  void read_part(const UnitPlace& place, std::span<float> out);
  void read_own(std::size_t unit, const Extent& range, std::span<float> out);
  std::int64_t read_elements() const;

  const UnitPlan& names_;
  const StatePlan& plan_;
  StateStore& store_;
  Collectives& collectives_;
  HostWindows windows_;
  WeightPlaces places_;
  std::vector<float> values_;    // on their way in
  std::vector<std::byte> rest_;  // of weights that have no optimizer state to keep it
};

}  // namespace zeepo
