#include "zeepo/data/json_value.h"

#include "zeepo/base/error.h"

namespace zeepo {

nlohmann::json parse_json(std::string_view text, std::string_view name) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw Error("{}: not JSON: {}", name, error.what());
  }
}

void JsonValue::wrong(std::string_view expected) const {
  throw Error("{}: is {}, must be {}", where_, value_->type_name(), expected);
}

JsonValue JsonValue::at(std::string_view key) const {
  if (auto found = find(key)) return *found;
  throw Error("{}: has no \"{}\"", where_, key);
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  const auto& members = object();
  const auto member = members.find(key);
  if (member == members.end() || member->second.is_null()) return std::nullopt;
  return JsonValue(member->second, fmt::format("{}.{}", where_, key));
}

std::vector<JsonValue> JsonValue::items() const {
  if (!value_->is_array()) wrong("a list");
  std::vector<JsonValue> items;
  items.reserve(value_->size());
  for (const auto& item : *value_) items.emplace_back(item, fmt::format("{}[{}]", where_, items.size()));
  return items;
}

const nlohmann::json::object_t& JsonValue::object() const {
  if (!value_->is_object()) wrong("an object");
  return value_->get_ref<const nlohmann::json::object_t&>();
}

const std::string& JsonValue::string() const {
  if (!value_->is_string()) wrong("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonValue::boolean() const {
  if (!value_->is_boolean()) wrong("true or false");
  return value_->get<bool>();
}

std::int64_t JsonValue::integer(std::int64_t low, std::int64_t high) const {
  if (!value_->is_number_integer()) wrong("a whole number");
  const bool too_large = value_->is_number_unsigned() && value_->get<std::uint64_t>() > std::uint64_t{INT64_MAX};
  const std::int64_t number = too_large ? INT64_MAX : value_->get<std::int64_t>();
  if (too_large || number < low || number > high)
    throw Error("{}: {} must be from {} to {}", where_, value_->dump(), low, high);
  return number;
}

std::string JsonValue::type() const {
  const auto found = find("type");
  return found ? found->string() : "";
}

}  // namespace zeepo
