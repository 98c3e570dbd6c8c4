// Help as a terminal shows it: its lines are cut at words, and go on where descriptions begin.
#pragma once

#include <string>

namespace zeepo::cli {

// Examples stay whole, to be copied. Less than 60 columns count as 60.
std::string folded_help(const std::string& help, int columns);

// For stdout: folded where it is a terminal, else as it is.
std::string help_for_stdout(const std::string& help);

}  // namespace zeepo::cli
