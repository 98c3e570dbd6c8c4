// Attributes and methods of values: message.content, text.strip(), dict.items(), loop.index.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "zeepo/chat/budget.h"
#include "zeepo/chat/value.h"

namespace zeepo::jinja {

// What Python's getattr gives: a method, a namespace's or loop's attribute, not an item of a dict. Throws Fault for an
// attribute that Python's type has and this does not, when it is called.
std::optional<Value> own_attribute(const Value& value, const std::string& name, Budget& budget);
// value.name as Jinja has it: the attribute, else the item, else undefined.
Value attribute_of(const Value& value, const std::string& name, Budget& budget);

// A method of str; nothing where str has none of that name. The budget must outlive the method.
std::optional<Value> text_method(const Text& text, const std::string& name, Budget& budget);

// Shared by methods and filters.
std::string replaced(std::string_view text, std::string_view from, std::string_view to, std::int64_t most,
                     Budget& budget);
// The text of an argument; Fault where it is something else. `function` and `name` are for the Fault.
const std::string& text_of(const Value* value, std::string_view function, std::string_view name);

}  // namespace zeepo::jinja
