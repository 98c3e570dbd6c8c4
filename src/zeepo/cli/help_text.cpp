#include "zeepo/cli/help_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <sstream>

namespace zeepo::cli {
namespace {

constexpr std::size_t kDescription = 30;  // the column in which CLI11 begins descriptions
constexpr int kLeastColumns = 60;

// Where a line goes on. Options and subcommands begin in column 2; a description may have a line of its own. Nothing
// for what is to be copied.
std::optional<std::size_t> indent_of_rest(const std::string& line) {
  const std::size_t text = line.find_first_not_of(' ');
  if (text == 2 || text == kDescription) return kDescription;
  const bool copied = text != 0 || line.starts_with("Usage") || line.starts_with("Example");
  return copied ? std::nullopt : std::optional<std::size_t>(0);
}

}  // namespace

std::string folded_help(const std::string& help, int columns) {
  const auto width = static_cast<std::size_t>(std::max(columns, kLeastColumns));
  std::istringstream lines(help);
  std::string folded;
  for (std::string line; std::getline(lines, line);) {
    const auto indent = indent_of_rest(line);
    while (indent && line.size() > width) {
      const std::size_t space = line.rfind(' ', width);
      if (space == std::string::npos || space <= *indent) break;
      folded += line.substr(0, space) + "\n";
      line = std::string(*indent, ' ') + line.substr(space + 1);
    }
    folded += line + "\n";
  }
  return folded;
}

std::string help_for_stdout(const std::string& help) {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return help;
  return folded_help(help, size.ws_col);
}

}  // namespace zeepo::cli
