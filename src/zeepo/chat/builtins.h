// Functions that every template can call.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>

#include "zeepo/chat/budget.h"
#include "zeepo/chat/value.h"

namespace zeepo::jinja {

Value make_builtin(std::string name, std::function<Value(Arguments&)> call);

// range(end), range(begin, end), range(begin, end, step): Fault beyond Budget::kLongestRange.
Value make_range(Arguments& arguments, Budget& budget);
Value make_dict_of(Arguments& arguments);
std::shared_ptr<Namespace> make_namespace(const Arguments& arguments);
// strftime_now(format), in local time.
Value format_time(Arguments& arguments, std::time_t now);

}  // namespace zeepo::jinja
