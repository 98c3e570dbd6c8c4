// A copy of this rank's states as of one step, taken while training goes on: for checkpoints.
//
// The shard is cut into parts. A part is copied into a buffer in host memory once its piece has been stepped, and at
// the latest before its piece is stepped again; a thread then hands the copy to a sink, which writes it. A step waits
// for a copy, never for the sink, as long as a buffer is free. All calls come from the rank's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "zeepo/zero/state_store.h"
#include "zeepo/zero/weight_places.h"

namespace zeepo {

// A range of this rank's shard, within one piece of optimizer state.
struct SnapshotPart {
  // Elements [begin, begin + elements) of a named weight, at element `at` of the range.
  struct Slice {
    std::string name;
    Shape shape;  // of the whole weight
    std::int64_t begin, elements, at;
  };
  std::size_t unit = 0;
  Extent range = {};
  std::optional<std::size_t> piece = {};  // none: not trained
  std::vector<Slice> slices = {};
};

// Of all units, in order. Padding is left out, and so are parts that are nothing else.
std::vector<SnapshotPart> snapshot_parts(const UnitPlan& units, const StatePlan& plan);

class StateSnapshot {
 public:
  // Called with a part's number and its copy, on threads of the snapshot, several at a time. Must not throw.
  using Sink = std::function<void(std::size_t part, const StateViews& states, const View& param)>;

  // Buffers of host memory for at most plan.options.snapshot_bytes, but one at least; none where that is 0.
  StateSnapshot(const UnitPlan& units, const StatePlan& plan, StateStore& store);

  const std::vector<SnapshotPart>& parts() const { return parts_; }
  // Begins a snapshot; the one before must be finished.
  void begin(Sink sink);
  // Around every step of a piece; one that is only due is announced, and copied after its step.
  void announce_step(const PieceId& id);
  void before_step(const PieceId& id);
  void after_step(const PieceId& id);
  // Starts as many copies as there are free buffers: now and then while a snapshot is under way.
  void advance();
  // Every part has been copied and the sink has had it.
  bool finished() const;
  void finish();
  // Gives up what has not been copied, and waits for the sink.
  void cancel() noexcept;
  double stalled_seconds() const { return stalled_seconds_; }

 private:
  // When a piece is to be copied: not at all, before its next step, or after the step that is due.
  enum class Copy { never, now, after_step };
  struct PieceState {
    bool due = false;  // announced, and not stepped yet
    Copy copy = Copy::never;
  };
  struct Buffer {
    Block memory;
    Completion free;
  };
  void make_buffers(std::int64_t most_bytes);
  std::size_t bytes_of(const SnapshotPart& part) const;
  // The copies of one part into one buffer.
  struct Copies {
    std::byte* free;  // of the buffer
    About about;
    std::vector<Completion> after, started;
    std::byte* take(std::size_t bytes) { return std::exchange(free, free + whole_pages(bytes)); }
  };
  void copy(std::size_t part);
  StateViews copy_states(const SnapshotPart& part, Copies& copies);
  View copy_params(const SnapshotPart& part, Copies& copies);
  void copy_array(Place from, const View& source, std::byte* to, Copies& copies);

  const UnitPlan& names_;
  const StatePlan& plan_;
  StateStore& store_;
  LowerTiers* lower_;
  std::vector<SnapshotPart> parts_;
  std::vector<std::vector<std::vector<std::size_t>>> parts_of_;  // of each unit's pieces
  std::vector<std::vector<PieceState>> pieces_;                  // of each unit
  std::vector<std::vector<Completion>> copies_;                  // of each part
  std::vector<bool> started_;                                    // the copies of a part
  std::deque<std::size_t> queue_;                                // parts that may be copied, some started meanwhile
  std::size_t left_ = 0;                                         // parts whose copy has not been started
  Sink sink_;
  double stalled_seconds_ = 0;
  std::vector<Buffer> buffers_;
  std::size_t next_ = 0;  // of buffers_
  // The last members: their jobs use the members above.
  WorkerOnDemand copier_;
  std::vector<std::unique_ptr<Worker>> writers_;
};

}  // namespace zeepo
