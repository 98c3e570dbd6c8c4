#include "zeepo/base/timeline.h"

#include <algorithm>
#include <iterator>
#include <new>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

std::string json_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20)
      fmt::format_to(std::back_inserter(result), "\\u{:04x}", static_cast<int>(c));
    else
      result += c;
  }
  return result + '"';
}

std::string joined(std::string_view verb, const About& about) {
  std::string name(verb);
  for (const std::string_view part : {about.what, about.of}) {
    if (part.empty()) continue;
    if (!name.empty()) name += ' ';
    name += part;
  }
  return name;
}

}  // namespace

std::string_view name_of(TimelineRow row) {
  switch (row) {
    case TimelineRow::steps: return "steps";
    case TimelineRow::compute: return "compute";
    case TimelineRow::host_step: return "host step";
    case TimelineRow::collectives: return "collectives";
    case TimelineRow::to_device: return "host to device";
    case TimelineRow::to_host: return "device to host";
    case TimelineRow::to_device_out_of_band: return "host to device, from the host's step";
    case TimelineRow::to_host_out_of_band: return "device to host, for the host's step";
    case TimelineRow::snapshots: return "device to host, for checkpoints";
    case TimelineRow::reads: return "file reads";
    case TimelineRow::reads_for_device: return "file reads for the device";
    case TimelineRow::writes: return "file writes";
    case TimelineRow::writes_from_device: return "file writes from the device";
  }
  return "?";
}

Timeline::Timeline(std::size_t most_spans) : most_spans_(most_spans) {
  if (most_spans < 1) throw Error("timeline: {} spans: must be at least 1", most_spans);
}

void Timeline::begin_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  if (step_ == 0) first_whole_step_ = std::max(first_whole_step_, step);
  step_ = step;
}

void Timeline::end_steps() {
  const std::lock_guard lock(mutex_);
  over_ = true;
}

void Timeline::add(TimelineRow row, std::string_view verb, const About& about, Clock::time_point start,
                   Clock::time_point end) noexcept {
  using std::chrono::nanoseconds;
  const auto since_origin = [this](Clock::time_point at) {
    return std::chrono::duration_cast<nanoseconds>(at - origin_).count();
  };
  const std::lock_guard lock(mutex_);
  if (over_) return;
  try {
    if (spans_.size() == most_spans_) {
      first_whole_step_ = std::max(first_whole_step_, spans_.front().step + 1);
      spans_.pop_front();
    }
    const std::string* kept = &*names_.insert(joined(verb, about)).first;
    spans_.push_back({kept, since_origin(start), since_origin(end), step_, row});
  } catch (const std::bad_alloc&) {
    first_whole_step_ = step_ + 1;
  }
}

std::pair<std::int64_t, std::int64_t> Timeline::steps() const {
  const std::lock_guard lock(mutex_);
  if (step_ == 0 || first_whole_step_ > step_) return {0, -1};
  return {first_whole_step_, step_};
}

std::string Timeline::events(int rank) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  const auto separate = [&] {
    if (!text.empty()) text += ",\n";
  };
  std::array<bool, kTimelineRows.size()> used{};
  const std::int64_t first = std::min(first_whole_step_, step_);  // of a step that is too long, its end
  for (const Recorded& span : spans_) {
    if (span.step < first) continue;
    used[static_cast<std::size_t>(span.row)] = true;
    separate();
    fmt::format_to(std::back_inserter(text),
                   R"({{"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"args":{{"step":{}}}}})", rank,
                   static_cast<int>(span.row), static_cast<double>(span.start) / 1e3,
                   static_cast<double>(span.end - span.start) / 1e3, json_text(*span.name), span.step);
  }
  const auto name = [&](std::string_view what, int row, std::string_view key, const std::string& value) {
    separate();
    fmt::format_to(std::back_inserter(text), R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"{}":{}}}}})", rank,
                   row, what, key, value);
  };
  name("process_name", 0, "name", json_text(fmt::format("rank {}", rank)));
  for (const TimelineRow row : kTimelineRows) {
    const auto i = static_cast<int>(row);
    if (!used[static_cast<std::size_t>(i)]) continue;
    name("thread_name", i, "name", json_text(name_of(row)));
    name("thread_sort_index", i, "sort_index", fmt::format("{}", i));
  }
  return text;
}

void Span::finish() noexcept {
  const auto end = Timeline::Clock::now();
  if (end - start_ >= least_) timeline_->add(row_, verb_, about_, start_, end);
}

}  // namespace zeepo
