// What a rank did when: spans of time on rows, one row a thread of work, for a viewer of Chrome traces (Perfetto).
//
// A Timeline belongs to one rank and is recorded into by all of its threads. It holds a bounded number of spans, the
// latest; what is told of them begins with a step that is here as a whole. Where there is no Timeline a Span costs the
// test of a pointer.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace zeepo {

// Spans of one row nest or lie apart. Files have two rows each way: states pass through host memory beside what goes
// straight to the device and comes from there.
enum class TimelineRow : std::uint8_t {
  steps,
  compute,
  host_step,
  collectives,
  to_device,
  to_host,
  to_device_out_of_band,
  to_host_out_of_band,
  snapshots,
  reads,
  reads_for_device,
  writes,
  writes_from_device,
};
inline constexpr std::array kTimelineRows{TimelineRow::steps,
                                          TimelineRow::compute,
                                          TimelineRow::host_step,
                                          TimelineRow::collectives,
                                          TimelineRow::to_device,
                                          TimelineRow::to_host,
                                          TimelineRow::to_device_out_of_band,
                                          TimelineRow::to_host_out_of_band,
                                          TimelineRow::snapshots,
                                          TimelineRow::reads,
                                          TimelineRow::reads_for_device,
                                          TimelineRow::writes,
                                          TimelineRow::writes_from_device};
std::string_view name_of(TimelineRow row);

// What work is about, for its span: "optimizer" of "h.3". Borrows both texts; who hands it on keeps them until the work
// is done.
struct About {
  std::string_view what = {}, of = {};
  friend bool operator==(const About&, const About&) = default;
};

class Timeline {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMostSpans = std::size_t{1} << 18;  // 10 MiB, and 30 MB of JSON

  // Time is counted from here. Throws Error when it may hold no span.
  explicit Timeline(std::size_t most_spans = kMostSpans);

  // Spans that end from now on belong to this step; steps only go up.
  void begin_step(std::int64_t step);
  // The steps are over: nothing more is recorded.
  void end_steps();
  // "verb what of". A span that there is no memory for is dropped.
  void add(TimelineRow row, std::string_view verb, const About& about, Clock::time_point start,
           Clock::time_point end) noexcept;

  // First and last step that are here as a whole; {0, -1} when there is none.
  std::pair<std::int64_t, std::int64_t> steps() const;
  // Elements of "traceEvents" with commas between them: the spans of these steps as process `rank`, and names.
  std::string events(int rank) const;

 private:
  struct Recorded {
    const std::string* name;
    std::int64_t start, end;  // ns
    std::int64_t step;
    TimelineRow row;
  };

  const std::size_t most_spans_;
  const Clock::time_point origin_ = Clock::now();
  mutable std::mutex mutex_;
  std::unordered_set<std::string> names_;  // as many as the model has units, times what is done with one
  std::deque<Recorded> spans_;             // in the order of their ends, but for threads that hurry past each other
  std::int64_t step_ = 0, first_whole_step_ = 0;
  bool over_ = false;
};

// From its making to its end. The texts must live as long.
class Span {
 public:
  // `least`: a shorter span is not worth a mark.
  Span(Timeline* timeline, TimelineRow row, std::string_view verb, const About& about = {},
       Timeline::Clock::duration least = {})
      : timeline_(timeline), row_(row), verb_(verb), about_(about), least_(least) {
    if (timeline_) start_ = Timeline::Clock::now();
  }
  ~Span() {
    if (timeline_) finish();
  }
  Span(Span&& other) noexcept
      : timeline_(std::exchange(other.timeline_, nullptr)),
        row_(other.row_),
        verb_(other.verb_),
        about_(other.about_),
        least_(other.least_),
        start_(other.start_) {}
  Span& operator=(Span&&) = delete;

 private:
  void finish() noexcept;

  Timeline* timeline_;
  TimelineRow row_;
  std::string_view verb_;
  About about_;
  Timeline::Clock::duration least_;
  Timeline::Clock::time_point start_;
};

// Waits shorter than this are not marked.
inline constexpr auto kLeastWait = std::chrono::microseconds(20);

}  // namespace zeepo
