// The values of a config.json by key, checked for type and range, with the default that an absent key has.
//
// A null is a fault unless the field may be null in transformers' own configuration class.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "zeepo/base/error.h"

namespace zeepo {

class ConfigFields {
 public:
  // Borrows both. `prefix` is written before keys in errors: "rope_scaling.".
  ConfigFields(const nlohmann::json& object, const std::string& what, std::string prefix = "");

  // The value, or nullptr where the key is absent or null.
  const nlohmann::json* find(const char* key) const;
  bool has(const char* key) const { return object_.contains(key); }
  bool is_null(const char* key) const { return has(key) && object_.at(key).is_null(); }

  // In [1, limit].
  std::int64_t size(const char* key, std::int64_t absent, std::int64_t limit) const;
  std::int64_t count(const char* key, std::int64_t absent) const;  // 0 or more
  // Nothing where the key is absent or null.
  std::optional<std::int64_t> optional_size(const char* key, std::int64_t limit) const;
  double number(const char* key, double absent) const;  // finite
  std::optional<double> optional_number(const char* key) const;
  bool flag(const char* key, bool absent) const;
  std::string text(const char* key, const std::string& absent) const;
  // Nothing where the key is absent or null.
  std::optional<std::string> optional_text(const char* key) const;

  template <class... Args>
  [[noreturn]] void fail(const char* key, fmt::format_string<Args...> format, Args&&... args) const {
    throw Error("{}: {}{}: {}", what_, prefix_, key, fmt::format(format, std::forward<Args>(args)...));
  }
  // fail, with the key's value shown first.
  [[noreturn]] void refuse(const char* key, const std::string& why) const;
  const std::string& what() const { return what_; }

 private:
  const nlohmann::json& object_;
  const std::string& what_;
  std::string prefix_;
};

}  // namespace zeepo
