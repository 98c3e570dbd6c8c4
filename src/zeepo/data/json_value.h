// JSON from strangers, read with its place in the file, so that every complaint says where: "model.vocab: ...".
//
// Borrows the document. Every accessor throws Error when the value is not of the kind asked for.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeepo {

// Throws Error with `name` and the place when `text` is not JSON.
nlohmann::json parse_json(std::string_view text, std::string_view name);

class JsonValue {
 public:
  JsonValue(const nlohmann::json& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  const nlohmann::json& raw() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  bool is_string() const { return value_->is_string(); }
  bool is_array() const { return value_->is_array(); }

  JsonValue at(std::string_view key) const;
  // Absent and null are the same.
  std::optional<JsonValue> find(std::string_view key) const;
  std::vector<JsonValue> items() const;
  const nlohmann::json::object_t& object() const;
  const std::string& string() const;
  bool boolean() const;
  std::int64_t integer(std::int64_t low, std::int64_t high) const;
  // The "type" of an object, "" where it has none.
  std::string type() const;

 private:
  [[noreturn]] void wrong(std::string_view expected) const;

  const nlohmann::json* value_;
  std::string where_;
};

}  // namespace zeepo
