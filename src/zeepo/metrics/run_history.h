// A run in numbers small enough to plot: the series of its steps, evaluations, and what happened when.
//
// Of a long run neighbouring steps share a point, twice as many whenever there would be more than kMostPoints. A step
// that is not after the last one begins again there: later points and evaluations go. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "zeepo/metrics/event_sink.h"

namespace zeepo {

class RunHistory {
 public:
  static constexpr std::size_t kMostPoints = 2048;
  static constexpr std::size_t kMostSeries = 64, kMostMarks = 400;

  // What is no event of a run is ignored.
  void take(const Event& event);
  // Steps that share a point.
  std::int64_t stride() const { return stride_; }
  // JSON for page/page.js. Points from the one that holds `from_step` on; all of them where another stride held when
  // the reader asked last.
  std::string json(std::int64_t from_step = 0, std::int64_t known_stride = 0) const;

 private:
  struct Range {
    double sum = 0, least = 0, most = 0;
    std::int64_t count = 0;  // of finite values
    void add(double value);
    void add(const Range& other);
  };
  struct Point {
    std::int64_t index, first_step, last_step;  // index: of the stride
    std::vector<Range> ranges;                  // by series; may be shorter than these
  };
  struct Evaluation {
    std::int64_t step;
    double loss;
  };
  struct Mark {
    std::int64_t step;
    std::string kind, text;
  };

  void take_step(const Event& event);
  void take_mark(const Event& event, const std::string& kind);
  void begin_again_at(std::int64_t step);
  void halve();
  int series_of(const std::string& name);
  std::string series_json(std::size_t from_point) const;
  std::string marks_json() const;

  std::int64_t stride_ = 1, last_step_ = 0;
  std::map<std::string, int, std::less<>> series_;  // to the place in Point::ranges
  std::vector<Point> points_;                       // in the order of their steps
  std::vector<Evaluation> evaluations_;
  std::deque<Mark> marks_;                           // the latest
  std::map<std::string, std::int64_t> mark_counts_;  // all of them, by kind
  Event last_step_event_, plan_, summary_;           // null: none yet
  std::string ended_;                                // how: "finished", "stopped"; empty: not yet
};

}  // namespace zeepo
