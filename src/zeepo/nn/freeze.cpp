#include "zeepo/nn/freeze.h"

#include <fnmatch.h>

#include <algorithm>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

struct NamedSlice {
  std::string name;
  Parameter* parameter;
  std::size_t slice;
};

std::vector<NamedSlice> slices_of(const Module& model) {
  std::vector<NamedSlice> slices;
  for (const auto& [prefix, parameter] : named_parameters(model))
    for (std::size_t i = 0; i < parameter->slices().size(); ++i)
      slices.push_back({prefix + parameter->slices()[i].name, parameter, i});
  return slices;
}

// Some of them, from all over the model.
std::string examples_of(const std::vector<NamedSlice>& slices) {
  constexpr std::size_t kMost = 6;
  const std::size_t count = std::min(kMost, slices.size());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i)
    names.push_back(slices[count > 1 ? i * (slices.size() - 1) / (count - 1) : 0].name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void freeze(Module& model, const std::vector<std::string>& patterns, const std::string& option) {
  const auto slices = slices_of(model);
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (const auto& [name, parameter, slice] : slices) {
      if (fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
      any = true;
      parameter->freeze(slice);
    }
    if (!any)
      throw UsageError("{} {}: matches none of the {} weights, whose names are like {}", option, pattern, slices.size(),
                       examples_of(slices));
  }
  if (!patterns.empty() && !model.trains())
    throw UsageError("{} {}: matches every weight, and nothing is left to train; leave out some of the patterns",
                     option, fmt::join(patterns, ","));
}

}  // namespace zeepo
