#include "zeepo/cli/table_options.h"

#include <fmt/format.h>

namespace zeepo::cli {

CLI::Option* add_table_option(CLI::App& command, const TrainOption& option, const std::string& group) {
  const std::string otherwise = option.otherwise.empty() ? "" : fmt::format(" [{}]", option.otherwise);
  const std::string help = option.help + otherwise;
  if (option.is_flag) return command.add_flag(option.name, help)->group(group);
  CLI::Option* added = command.add_option(option.name, help)->type_name(option.type)->group(group);
  added->expected(option.value_left_out.empty() ? 1 : 0, 1);
  if (option.repeatable) added->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  if (option.otherwise.empty()) added->default_str(text_of_default(option));
  return added;
}

OptionTexts given_texts(const CLI::App& command) {
  OptionTexts texts;
  for (const TrainOption& option : option_table()) {
    const CLI::Option* given = command.get_option_no_throw(option.name);
    if (given == nullptr || given->count() == 0) continue;
    if (option.is_flag) {
      texts[option.name] = given->as<bool>() ? "true" : "false";
      continue;
    }
    const auto values = given->results();
    const bool alone = !option.value_left_out.empty() && (values.empty() || values.front().empty());
    texts[option.name] = alone ? option.value_left_out : fmt::format("{}", fmt::join(values, ","));
  }
  return texts;
}

}  // namespace zeepo::cli
