// A room of the engine by itself: units without a model, on one rank of some, in a session of its own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/zero/collectives.h"
#include "zeepo/zero/session.h"
#include "zeepo/zero/state_plan.h"

namespace zeepo {

// Units of two parameters each: a matrix of `rows` × 128 and a vector. Each has a visit; the last, with `outside`,
// none.
inline UnitPlan plain_units(const std::vector<std::int64_t>& rows, bool outside = false) {
  UnitPlan plan;
  for (std::size_t u = 0; u < rows.size(); ++u) {
    const std::string name = "unit" + std::to_string(u);
    const Shape matrix{rows[u], 128}, vector{100};
    Unit unit{name, {}, 0};
    unit.parameters.push_back({0, matrix, true, {{{name + ".matrix", matrix, Init::normal(1)}, 0, matrix.elements()}}});
    unit.parameters.push_back(
        {matrix.elements(), vector, true, {{{name + ".vector", vector, Init::ones()}, 0, vector.elements()}}});
    unit.elements = matrix.elements() + Unit::kAlignment;
    plan.units.push_back(std::move(unit));
    if (!outside || u + 1 < rows.size()) plan.visits.push_back({{u}, name});
  }
  return plan;
}

inline RankPlace place_of(const Communicator& communicator) {
  return {communicator.rank(), communicator.size(), communicator.alone()};
}

inline Session::Options small_session(const std::filesystem::path& files = {}) {
  Session::Options options{.threads = 1, .device_bytes = 64 << 20};
  options.lower.host_bytes = 64 << 20;
  options.lower.staging_bytes = 1 << 18;
  if (!files.empty()) {
    options.lower.nvme_paths = {files};
    options.lower.nvme_bytes = 64 << 20;
  }
  return options;
}

// Weight `i` of a unit, so that each is another number.
inline float weight_at(std::size_t unit, std::int64_t i) {
  return static_cast<float>(i % 1009) * 0.25f + static_cast<float>(unit);
}

}  // namespace zeepo
