#include "zeepo/train/deepspeed_block.h"

#include <algorithm>
#include <cmath>

namespace zeepo {
namespace {

using Json = nlohmann::json;

// Where DeepSpeed's own default is null.
bool may_be_null(std::string_view key) {
  constexpr std::string_view kKeys[] = {"train_batch_size",
                                        "train_micro_batch_size_per_gpu",
                                        "gradient_accumulation_steps",
                                        "optimizer",
                                        "scheduler",
                                        "offload_param",
                                        "offload_optimizer",
                                        "nvme_path",
                                        "params",
                                        "overlap_comm",
                                        "steps_per_print",
                                        "number_checkpoints",
                                        "communication_data_type"};
  return std::ranges::find(kKeys, key) != std::end(kKeys);
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_plain(char c) { return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

// Also once it is a float: 0.999999999 is 1 there.
bool is_below(const Json& value, double least, double limit) {
  if (!value.is_number()) return false;
  const auto number = value.get<double>();
  return number >= least && number < limit && static_cast<double>(static_cast<float>(number)) < limit;
}

}  // namespace

DeepSpeedBlock::DeepSpeedBlock(const Json& object, const std::string& file, std::vector<std::string>& unused,
                               std::string prefix)
    : object_(&object), file_(&file), unused_(&unused), prefix_(std::move(prefix)) {}

void DeepSpeedBlock::refuse(const char* key, const std::string& why) const {
  throw UsageError("{}: {}{}: {}: {}", *file_, prefix_, key, has(key) ? shown_json(object_->at(key)) : "absent", why);
}

const Json* DeepSpeedBlock::find(const char* key) {
  asked_.insert(key);
  const auto found = object_->find(key);
  if (found == object_->end() || *found == "auto") return nullptr;
  if (found->is_null() && may_be_null(key)) return nullptr;
  return &*found;
}

std::optional<std::int64_t> DeepSpeedBlock::whole(const char* key, std::int64_t least, std::int64_t most) {
  constexpr double kExact = 0x1p53;
  const Json* value = find(key);
  if (!value) return std::nullopt;
  const double rounded = value->is_number() ? value->get<double>() : 0;
  const bool is_whole = value->is_number() && std::abs(rounded) <= kExact && std::floor(rounded) == rounded;
  if (!is_whole || rounded < static_cast<double>(least) || rounded > static_cast<double>(most))
    refuse(key, fmt::format("must be a whole number from {} to {}", least, most));
  return static_cast<std::int64_t>(rounded);
}

std::optional<double> DeepSpeedBlock::number(const char* key, double least, double most) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_number() || !(value->get<double>() >= least && value->get<double>() <= most))
    refuse(key, fmt::format("must be a number from {} to {}", least, most));
  return value->get<double>();
}

std::optional<double> DeepSpeedBlock::number_below(const char* key, double least, double limit) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!is_below(*value, least, limit))
    refuse(key, fmt::format("must be a number, at least {} and below {}", least, limit));
  return value->get<double>();
}

std::optional<std::pair<double, double>> DeepSpeedBlock::pair_below(const char* key, double least, double limit) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  const auto in_range = [&](const Json& part) { return is_below(part, least, limit); };
  if (!value->is_array() || value->size() != 2 || !std::ranges::all_of(*value, in_range))
    refuse(key, fmt::format("must be two numbers, each at least {} and below {}", least, limit));
  return std::pair{value->at(0).get<double>(), value->at(1).get<double>()};
}

std::optional<bool> DeepSpeedBlock::flag(const char* key) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) refuse(key, "must be true or false");
  return value->get<bool>();
}

std::optional<std::string> DeepSpeedBlock::text(const char* key) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_string()) refuse(key, "must be a string");
  return value->get<std::string>();
}

std::optional<DeepSpeedBlock> DeepSpeedBlock::block(const char* key) {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_object()) refuse(key, "must be an object");
  return DeepSpeedBlock(*value, *file_, *unused_, prefix_ + key + ".");
}

void DeepSpeedBlock::unused_flags(std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (flag(key)) name_as_unused(key);
}

void DeepSpeedBlock::unused_numbers(std::initializer_list<const char*> keys) {
  constexpr double kAny = 1e300;
  for (const char* key : keys)
    if (number(key, -kAny, kAny)) name_as_unused(key);
}

void DeepSpeedBlock::name_as_unused(const char* key) { unused_->push_back(prefix_ + key); }

void DeepSpeedBlock::name_unused() {
  for (const auto& [key, value] : object_->items()) {
    if (asked_.contains(key)) continue;
    const bool plain = !key.empty() && key.size() <= 100 && std::ranges::all_of(key, is_plain);
    unused_->push_back(prefix_ + (plain ? key : shown(key)));
  }
}

bool DeepSpeedBlock::same_but_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace zeepo
