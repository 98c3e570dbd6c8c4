#include "zeepo/metrics/run_log.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"

namespace zeepo {
namespace {

constexpr std::string_view kStepLine = R"({"event":"step","step":)", kEventLine = R"({"event":")";

constexpr int kMostDepth = 32;  // of objects and lists, which no event of a run has: JSON is copied by recursion

bool is_deep(std::string_view line) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (in_text && c == '\\')
      ++i;
    else if (c == '"')
      in_text = !in_text;
    else if (!in_text && (c == '{' || c == '['))
      ++depth;
    else if (!in_text && (c == '}' || c == ']'))
      --depth;
    if (depth > kMostDepth) return true;
  }
  return false;
}

Event parsed(std::string_view line) {
  return is_deep(line) ? Event(Event::value_t::discarded) : Event::parse(line, nullptr, false);
}

// The step that this line is of; 0 where it is no step's.
std::int64_t step_in(std::string_view line) {
  if (line.starts_with(kStepLine) && line.ends_with('}')) {
    std::int64_t step = 0;
    const auto [stop, fault] = std::from_chars(line.data() + kStepLine.size(), line.data() + line.size(), step);
    if (fault == std::errc{} && (*stop == ',' || *stop == '}')) return std::max<std::int64_t>(step, 0);
  }
  if (line.starts_with(kEventLine) && !line.substr(kEventLine.size()).starts_with("step\"")) return 0;
  const Event event = parsed(line);
  return kind_of(event) == "step" ? std::max<std::int64_t>(step_of(event), 0) : 0;
}

// Parts of a log in which the steps rise: one a run, another with each resume.
class Parts {
 public:
  // Whether a step begins another part.
  bool begins(std::int64_t step) { return step <= std::exchange(last_, step); }

 private:
  std::int64_t last_ = 0;
};

// For each part the first step that a later part does again.
std::vector<std::int64_t> limits_of(const EachLine& each_line) {
  std::vector<std::int64_t> firsts{std::numeric_limits<std::int64_t>::max()};  // of each part
  Parts parts;
  each_line([&](std::string_view line, bool) {
    if (const std::int64_t step = step_in(line); step > 0 && parts.begins(step)) firsts.push_back(step);
  });
  std::vector<std::int64_t> limits(firsts.size(), std::numeric_limits<std::int64_t>::max());
  for (std::size_t i = limits.size() - 1; i > 0; --i) limits[i - 1] = std::min(limits[i], firsts[i]);
  return limits;
}

}  // namespace

RunLog read_run_log(const EachLine& each_line) {
  const auto limits = limits_of(each_line);
  RunLog log;
  Parts parts;
  std::size_t part = 0;
  each_line([&](std::string_view line, bool whole) {
    ++log.lines;
    log.ends_in_a_line = !whole;
    if (const std::int64_t step = step_in(line); step > 0 && parts.begins(step)) ++part;
    const Event event = parsed(line);
    const std::string kind = kind_of(event);
    if (kind.empty()) {
      if (whole) ++log.damaged_lines;
      return;
    }
    // The file may have grown since it was read first.
    const std::int64_t limit = part < limits.size() ? limits[part] : std::numeric_limits<std::int64_t>::max();
    const bool numbered = kind == "step" || kind == "eval";
    if (numbered && step_of(event) >= limit) {
      log.repeated_steps += kind == "step";
      return;
    }
    log.history.take(event);
    log.digest.take(event);
  });
  return log;
}

RunLog read_run_log(const std::filesystem::path& path) {
  const InputFile file(path);
  constexpr std::int64_t kPiece = 1 << 20;
  const EachLine each_line = [&](const std::function<void(std::string_view, bool)>& take) {
    std::string piece, rest;
    bool too_long = false;
    for (std::int64_t offset = 0; offset < file.bytes();) {
      piece.resize(static_cast<std::size_t>(std::min(kPiece, file.bytes() - offset)));
      file.read(offset, std::as_writable_bytes(std::span(piece)));
      offset += static_cast<std::int64_t>(piece.size());
      std::string_view text = piece;
      for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
        if (rest.empty() && !too_long) {
          take(text.substr(0, end), true);
        } else {
          take(too_long ? std::string_view() : std::string_view(rest += text.substr(0, end)), true);
          rest.clear();
          too_long = false;
        }
        text.remove_prefix(end + 1);
      }
      if (!too_long) rest += text;
      if (rest.size() > kMostLineBytes) {
        too_long = true;
        rest = {};
      }
    }
    if (!rest.empty() || too_long) take(rest, false);
  };
  RunLog log = read_run_log(each_line);
  if (log.lines == log.damaged_lines + log.ends_in_a_line && log.digest.steps() == 0)
    throw Error("{}: {}", path.string(),
                file.bytes() == 0 ? "is empty" : "no line of it is an event of a run: name the file of --log");
  return log;
}

}  // namespace zeepo
