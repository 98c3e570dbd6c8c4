#include "zeepo/chat/builtins.h"

#include <fmt/format.h>

#include <array>

#include "zeepo/chat/methods.h"
#include "zeepo/chat/operators.h"

namespace zeepo::jinja {

Value make_builtin(std::string name, std::function<Value(Arguments&)> call) {
  return std::make_shared<const Callable>(Callable{std::move(name), std::move(call)});
}

Value make_range(Arguments& arguments, Budget& budget) {
  std::vector<std::int64_t> numbers;
  for (const Value& value : arguments.positional) {
    must_be_defined(value);
    if (!value.integer()) throw Fault(fmt::format("range(): a {} is no whole number", type_name(value)));
    numbers.push_back(*value.integer());
  }
  if (numbers.empty() || numbers.size() > 3 || !arguments.named.empty()) throw Fault("range() takes 1 to 3 numbers");
  const std::int64_t begin = numbers.size() > 1 ? numbers[0] : 0, end = numbers.size() > 1 ? numbers[1] : numbers[0],
                     step = numbers.size() > 2 ? numbers[2] : 1;
  if (step == 0) throw Fault("range(): a step of 0");
  std::vector<Value> items;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<std::int64_t>(items.size()) == Budget::kLongestRange)
      throw Fault(fmt::format("range({}): more than {} numbers", fmt::join(numbers, ", "), Budget::kLongestRange));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  budget.bytes(items.size() * sizeof(Value));
  return make_list(std::move(items), List::Kind::range);
}

Value make_dict_of(Arguments& arguments) {
  if (arguments.positional.size() > 1 || (arguments.positional.size() == 1 && !arguments.positional[0].dict()))
    throw Fault("dict() takes a dict and names");
  Dict made = arguments.positional.empty() ? Dict{} : *arguments.positional[0].dict();
  for (auto& [name, value] : arguments.named) made.set(Value(name), value);
  return make_dict(std::move(made));
}

std::shared_ptr<Namespace> make_namespace(const Arguments& arguments) {
  auto made = std::make_shared<Namespace>();
  for (const Value& value : arguments.positional) {
    if (value.dict() == nullptr) throw Fault(fmt::format("namespace(): a {} is no dict", type_name(value)));
    for (const auto& [key, item] : value.dict()->entries()) made->set(text_of(&key, "namespace", "key"), item);
  }
  for (const auto& [name, value] : arguments.named) made->set(name, value);
  return made;
}

Value format_time(Arguments& arguments, std::time_t now) {
  const std::string format = text_of(arguments.take(0, "format"), "strftime_now", "format");
  arguments.done("strftime_now");
  constexpr std::size_t kLongestFormat = 200;
  if (format.size() > kLongestFormat) throw Fault(fmt::format("strftime_now(): a format of {} bytes", format.size()));
  std::tm time{};
  if (::localtime_r(&now, &time) == nullptr) throw Fault("strftime_now(): the time is not known");
  std::array<char, 8192> text;
  return std::string(text.data(), std::strftime(text.data(), text.size(), format.c_str(), &time));
}

}  // namespace zeepo::jinja
