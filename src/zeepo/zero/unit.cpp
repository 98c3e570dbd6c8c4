#include "zeepo/zero/unit.h"

#include <fmt/format.h>

namespace zeepo {

Label UnitPlan::label(std::string_view what, std::size_t unit) const {
  return {fmt::format("{} of {}", what, units[unit].name), static_cast<std::int64_t>(unit)};
}

std::int64_t parameter_count(const UnitPlan& plan) {
  std::int64_t count = 0;
  for (const auto& unit : plan.units)
    for (const auto& parameter : unit.parameters) count += parameter.shape.elements();
  return count;
}

std::int64_t trained_count(const UnitPlan& plan) {
  std::int64_t count = 0;
  for (const auto& unit : plan.units)
    for (const auto& parameter : unit.parameters)
      if (parameter.trainable) count += parameter.shape.elements();
  return count;
}

}  // namespace zeepo
