// Every option of a training run, described once.
//
// The command line, its help, DeepSpeed's file, the check of values, the agreement of the ranks and lists of options in
// logs are all made from this table. A new option is one entry of option_table.cpp and one field of TrainOptions.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zeepo/train/options.h"

namespace zeepo {

class DeepSpeedBlock;

// What another value of an option changes: bits of the losses and weights; or only time, memory, places and reports.
enum class Effect { result, execution };

// What the ranks of a job must have in common.
enum class Ranks {
  agree,              // the value
  agree_if_given,     // whether there is a value: the ranks take part in what it asks for
  agree_in_contents,  // what the files hold, which Trainer compares
  may_differ,
};

// As the help groups them.
enum class OptionGroup { data, optimizer, numerics, ranks, memory, checkpoint, report, file };
std::string_view title_of(OptionGroup group);

struct TrainOption {
  std::string name = {};  // "--micro-batch"; without a flag of its own, DeepSpeed's key: "aio.queue_depth"
  OptionGroup group = OptionGroup::file;
  std::string help = {};
  std::string otherwise = {};  // what holds where there is no value, in words; empty where text() has the default
  bool required = false;
  bool is_flag = false;             // takes no value on the command line
  bool repeatable = false;          // given several times, its texts are joined by commas
  std::string value_left_out = {};  // the text of an option that stands alone; empty: it must have a value
  std::string type = {};            // of the value, in the help: "INT"
  // An entry that does not say is held to be what asks for most care.
  Effect effect = Effect::result;
  Ranks ranks = Ranks::agree;
  std::vector<std::string> deepspeed = {};       // keys that are this option one to one: "zero_optimization.stage"
  std::vector<std::string> deepspeed_also = {};  // keys that mean it in other words, which deepspeed_config.cpp reads

  // Sets the field from a text. Throws UsageError naming option and text.
  std::function<void(TrainOptions&, const std::string&)> parse = {};
  // What parse() reads back to the same value; empty: no value, as by default.
  std::function<std::string(const TrainOptions&)> text = {};
  // Throws UsageError for a value out of range; empty: every value is in range.
  std::function<void(const TrainOptions&)> check = {};
  // The text of what a key of `deepspeed` says, by its last part in its object; nothing where it is absent.
  std::function<std::optional<std::string>(DeepSpeedBlock&, const char* key)> from_json = {};

  bool on_command_line() const { return name.starts_with("--"); }
};

const std::vector<TrainOption>& option_table();
// The text that the option has where nobody gives it.
std::string text_of_default(const TrainOption& option);
// Null for a name, or a key of DeepSpeed's, that no option has.
const TrainOption* find_option(std::string_view name);
const TrainOption* find_option_by_key(std::string_view deepspeed_key);

// Names of options and their texts.
using OptionTexts = std::map<std::string, std::string>;

// Sets one option from its text and checks its range. Throws UsageError, also for a name that is not there
// and an empty text.
void assign(TrainOptions& options, const std::string& name, const std::string& text);

// Name and value of all that the ranks must agree on, for check_agreement().
std::vector<std::pair<std::string, std::string>> agreed_values(const TrainOptions& options);

// The options in which two runs differ, in the order of the table.
struct OptionDifference {
  const TrainOption* option;
  std::string before, after;
};
std::vector<OptionDifference> differences(const TrainOptions& before, const TrainOptions& after);

}  // namespace zeepo
