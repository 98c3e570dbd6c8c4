// One direction between a device and the tiers it offloads to: a thread, a way to copy, the link's pace, and two
// staging buffers for what comes from files or goes there, one copied while the other is read or written.
//
// run() is called on the rank's thread. The functions below it are for the lane's jobs, which run in the order given.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "zeepo/base/pace.h"
#include "zeepo/base/timeline.h"
#include "zeepo/device/copy_lane.h"
#include "zeepo/device/worker.h"
#include "zeepo/io/swap_file.h"
#include "zeepo/memory/file_parts.h"
#include "zeepo/memory/tier.h"

namespace zeepo {

std::size_t bytes_of(std::span<const LinkCopy> copies);

class TransferLane {
 public:
  struct Rows {
    TimelineRow copies, files;
  };
  // Borrows pace and timeline (may be null). Without staging buffers: for copies alone. `copies` may be null on a lane
  // that gets no jobs, as in a dry pass.
  TransferLane(std::unique_ptr<CopyLane> copies, Pace& pace, Timeline* timeline, const Rows& rows,
               std::array<Block, 2> staging = {});

  Completion run(std::function<void()> job) { return worker_.run(std::move(job)); }
  void drain() { worker_.drain(); }
  const std::array<Block, 2>& staging() const { return staging_; }
  std::size_t staging_bytes() const { return staging_[0].bytes() + staging_[1].bytes(); }

  void start_after(const Point& point) { copies_->start_after(point); }
  // All of them at once: what other lanes carry waits for the end, or comes before.
  void copy(std::span<const LinkCopy> copies, const About& about);
  // Files to device memory and back, a staging buffer at a time.
  void read(SwapFile& file, std::size_t offset, std::byte* device, std::size_t bytes, const About& about);
  // Parts of files that others have written, each to its place from `device` on.
  void read(IoEngine& engine, std::span<const FilePart> parts, std::byte* device, const About& about);
  void write(const std::byte* device, SwapFile& file, std::size_t offset, std::size_t bytes, const About& about);

 private:
  // A staging buffer that is being read or written.
  struct Moving {
    void start(IoCompletion io) {
      done = std::move(io);
      began = Timeline::Clock::now();
      under_way = true;
    }
    IoCompletion done;
    Timeline::Clock::time_point began;
    bool under_way = false;
  };
  std::span<std::byte> buffer(std::size_t i) { return {staging_[i % 2].data(), staging_[i % 2].bytes()}; }
  void copy_one(const void* from, void* to, std::size_t bytes, const About& about);
  void finish(Moving& moving, std::string_view verb, const About& about);

  std::unique_ptr<CopyLane> copies_;
  Pace& pace_;
  Timeline* timeline_;
  Rows rows_;
  Timeline::Clock::time_point last_moved_;  // when the last staging buffer was read or written
  std::array<Block, 2> staging_;
  WorkerOnDemand worker_;  // last: its jobs use what stands above
};

}  // namespace zeepo
