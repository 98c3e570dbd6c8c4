// The names of one block, and of what is around it.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "zeepo/chat/interpreter.h"

namespace zeepo::jinja {

struct Interpreter::Scope : std::enable_shared_from_this<Scope> {
  explicit Scope(ScopePtr outside = nullptr) : parent(std::move(outside)) {}

  ScopePtr parent;
  std::vector<std::pair<std::string, Value>> names;
  bool is_kept = false;  // until the Interpreter's end, for the macros in it

  void set(const std::string& name, Value value) {
    const auto found =
        std::ranges::find(names, name, [](const auto& entry) -> const std::string& { return entry.first; });
    if (found != names.end()) {
      found->second = std::move(value);
    } else {
      names.emplace_back(name, std::move(value));
    }
  }
};

}  // namespace zeepo::jinja
