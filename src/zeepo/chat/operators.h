// Python's operators on values. All throw Fault where Python raises an exception.
#pragma once

#include <string_view>
#include <vector>

#include "zeepo/chat/budget.h"
#include "zeepo/chat/value.h"

namespace zeepo::jinja {

// "+", "-", "*", "/", "//", "%", "**"
Value binary(std::string_view sign, const Value& left, const Value& right, Budget& budget);
Value negative(const Value& value);

bool equal(const Value& left, const Value& right, Budget& budget);
// Less than zero, zero or more: for numbers, text, lists.
int order(const Value& left, const Value& right, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);
// "==", "<", "in", "not in", ...
bool compare(std::string_view sign, const Value& left, const Value& right, Budget& budget);

// What a loop goes over: items, keys, characters. A generator is empty afterwards.
std::vector<Value> items_of(const Value& value, Budget& budget);
// Throws Fault for what has none.
std::int64_t length_of(const Value& value);

// value[key]; undefined where there is none.
Value item_of(const Value& value, const Value& key, Budget& budget);
// value[begin:end:step]; null where left out.
Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget);

// Throws Fault when the value is undefined, with what it was to be.
void must_be_defined(const Value& value);

}  // namespace zeepo::jinja
