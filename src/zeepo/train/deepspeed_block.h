// One object of a DeepSpeed configuration, read key by key and checked for type and range.
//
// A key that is absent, or "auto" as Hugging Face writes it, gives nothing. Every fault is a UsageError that names the
// file, the key with the objects it lies in, and the value. What no call has asked for is left to name_unused().
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/model/strict_json.h"

namespace zeepo {

class DeepSpeedBlock {
 public:
  // Borrows all three; `unused` collects the keys that zeepo does not act on. `prefix` stands before keys: "fp16.".
  DeepSpeedBlock(const nlohmann::json& object, const std::string& file, std::vector<std::string>& unused,
                 std::string prefix = "");

  // Whole numbers may be written as DeepSpeed's users do: 5e8.
  std::optional<std::int64_t> whole(const char* key, std::int64_t least, std::int64_t most);
  std::optional<double> number(const char* key, double least, double most);
  std::optional<double> number_below(const char* key, double least, double limit);  // limit is out of range, as a float
  std::optional<std::pair<double, double>> pair_below(const char* key, double least, double limit);
  std::optional<bool> flag(const char* key);
  std::optional<std::string> text(const char* key);
  std::optional<DeepSpeedBlock> block(const char* key);

  // The choice's value; names are compared without regard to case.
  template <class T>
  std::optional<T> choice(const char* key, const std::vector<std::pair<std::string, T>>& choices) {
    const auto name = text(key);
    if (!name) return std::nullopt;
    std::vector<std::string_view> names;
    for (const auto& [known, value] : choices) {
      if (same_but_case(*name, known)) return value;
      names.push_back(known);
    }
    refuse(key, fmt::format("must be one of {}", fmt::join(names, ", ")));
  }

  // Keys that DeepSpeed knows and zeepo does not act on: a wrong type is a fault all the same.
  void unused_flags(std::initializer_list<const char*> keys);
  void unused_numbers(std::initializer_list<const char*> keys);
  void name_as_unused(const char* key);
  // Names every key that nothing has asked for. To be called last.
  void name_unused();

  const std::string& prefix() const { return prefix_; }  // what stands before its keys: "fp16."
  [[noreturn]] void refuse(const char* key, const std::string& why) const;
  bool has(const char* key) const { return object_->contains(key); }

 private:
  // Nothing where there is nothing to act on.
  const nlohmann::json* find(const char* key);
  static bool same_but_case(std::string_view a, std::string_view b);

  const nlohmann::json* object_;
  const std::string* file_;
  std::vector<std::string>* unused_;
  std::string prefix_;
  std::set<std::string> asked_;
};

}  // namespace zeepo
