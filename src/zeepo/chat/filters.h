// Jinja's filters and tests, as far as chat templates use them.
#pragma once

#include <string_view>

#include "zeepo/chat/budget.h"
#include "zeepo/chat/value.h"

namespace zeepo::jinja {

// value | name(arguments). Throws Fault for a filter that is not known, or not supported, by its name.
Value apply_filter(std::string_view name, const Value& value, Arguments& arguments, Budget& budget);
// value is name(arguments)
bool apply_test(std::string_view name, const Value& value, Arguments& arguments, Budget& budget);

// One part of the filters each; nothing where `name` is not one of them.
std::optional<Value> apply_text_filter(std::string_view name, const Value& value, Arguments& arguments, Budget& budget);
std::optional<Value> apply_list_filter(std::string_view name, const Value& value, Arguments& arguments, Budget& budget);

// value.a.b.0 for "a.b.0", as in map(attribute="a.b.0").
Value path_of(const Value& value, const Value& path, Budget& budget);

}  // namespace zeepo::jinja
