#include "zeepo/train/weight_check.h"

#include <cmath>

namespace zeepo {

void WeightCheck::operator()(const std::string& name, std::int64_t begin, std::span<const float> values) const {
  const std::size_t at = first_past(dtype, values);
  if (at == values.size()) return;
  const float value = values[at];
  const bool finite = std::isfinite(value);
  const std::string why = finite ? fmt::format("too large for {}; {}", name_of(dtype), way_out)
                                 : "not a number that can be used; lower --lr, raise --eps, or look for broken weights";
  throw UnfitWeight(fmt::format("{}, element {} of the weight {} is {}: {}", when,
                                begin + static_cast<std::int64_t>(at), name, value, why),
                    finite);
}

}  // namespace zeepo
