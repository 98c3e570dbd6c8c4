#include "zeepo/model/config_fields.h"

#include <cmath>
#include <limits>

#include "zeepo/model/strict_json.h"

namespace zeepo {

ConfigFields::ConfigFields(const nlohmann::json& object, const std::string& what, std::string prefix)
    : object_(object), what_(what), prefix_(std::move(prefix)) {}

const nlohmann::json* ConfigFields::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigFields::refuse(const char* key, const std::string& why) const {
  fail(key, "{}: {}", has(key) ? shown_json(object_.at(key)) : "absent", why);
}

std::optional<std::int64_t> ConfigFields::optional_size(const char* key, std::int64_t limit) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() < 1 ||
      value->get<std::uint64_t>() > static_cast<std::uint64_t>(limit))
    refuse(key, fmt::format("must be a whole number from 1 to {}", limit));
  return value->get<std::int64_t>();
}

std::int64_t ConfigFields::size(const char* key, std::int64_t absent, std::int64_t limit) const {
  if (is_null(key)) refuse(key, fmt::format("must be a whole number from 1 to {}", limit));
  return optional_size(key, limit).value_or(absent);
}

std::int64_t ConfigFields::count(const char* key, std::int64_t absent) const {
  if (!has(key)) return absent;
  const nlohmann::json& value = object_.at(key);
  constexpr std::uint64_t limit = std::numeric_limits<std::int64_t>::max();
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > limit)
    refuse(key, "must be a whole number, 0 or more");
  return value.get<std::int64_t>();
}

std::optional<double> ConfigFields::optional_number(const char* key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<double>())) refuse(key, "must be a finite number");
  return value->get<double>();
}

double ConfigFields::number(const char* key, double absent) const {
  if (is_null(key)) refuse(key, "must be a finite number");
  return optional_number(key).value_or(absent);
}

bool ConfigFields::flag(const char* key, bool absent) const {
  if (!has(key)) return absent;
  const nlohmann::json& value = object_.at(key);
  if (!value.is_boolean()) refuse(key, "must be true or false");
  return value.get<bool>();
}

std::optional<std::string> ConfigFields::optional_text(const char* key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(key, "must be a string");
  return value->get<std::string>();
}

std::string ConfigFields::text(const char* key, const std::string& absent) const {
  if (is_null(key)) refuse(key, "must be a string");
  return optional_text(key).value_or(absent);
}

}  // namespace zeepo
