#include "zeepo/model/weight_names.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr std::array<std::string_view, 3> kBuffers{".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq"};

std::string_view body_prefix(Architecture architecture) {
  return architecture == Architecture::gpt2 ? "transformer." : "model.";
}

bool passed_over(const ModelConfig& config, std::string_view name) {
  if (config.tied_head && name == "lm_head.weight") return true;
  return std::any_of(kBuffers.begin(), kBuffers.end(), [&](auto buffer) {
    // Without a prefix the first layer's mask is "h.0.attn.bias".
    return name.ends_with(buffer) || name == buffer;
  });
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

// Up to three names, and how many more there are.
std::string some_of(const std::vector<std::string>& names) {
  const std::size_t shown = std::min<std::size_t>(3, names.size());
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

std::map<std::string, std::string> match_weights(const ModelConfig& config, const std::vector<ExpectedWeight>& expected,
                                                 const WeightFiles& files) {
  const std::string where = files.directory().string();
  const std::string_view prefix = body_prefix(config.architecture);
  std::map<std::string, std::string> result;
  std::vector<std::string> missing;
  std::set<std::string> used;
  for (const auto& [name, shape] : expected) {
    std::string stored = name;
    if (!files.find(stored) && name.starts_with(prefix)) stored = name.substr(prefix.size());
    const auto* entry = files.find(stored);
    if (!entry) {
      missing.push_back(name);
      continue;
    }
    if (entry->shape != shape)
      throw Error("{}: tensor {} has shape {}, but config.json makes it {}", where, stored, shape_text(entry->shape),
                  shape_text(shape));
    used.insert(stored);
    result.emplace(name, stored);
  }
  if (!missing.empty())
    throw Error("{}: missing {} of {} weights: {}; are the files complete, and of the model in config.json?", where,
                missing.size(), expected.size(), some_of(missing));
  std::vector<std::string> unknown;
  for (const auto& name : files.names())
    if (!used.contains(name) && !passed_over(config, name)) unknown.push_back(name);
  if (!unknown.empty())
    throw Error("{}: {} tensors that a {} model does not have: {}", where, unknown.size(), name_of(config.architecture),
                some_of(unknown));
  return result;
}

}  // namespace zeepo
