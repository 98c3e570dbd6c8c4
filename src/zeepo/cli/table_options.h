// Options of the table (train/option_table.h) on the command line of a command.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "zeepo/train/option_table.h"

namespace zeepo::cli {

// With the words, the type and the default of the table, in a group of the help.
CLI::Option* add_table_option(CLI::App& command, const TrainOption& option, const std::string& group);

// Those that were given to the command, with their texts.
OptionTexts given_texts(const CLI::App& command);

}  // namespace zeepo::cli
