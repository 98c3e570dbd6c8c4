// The tiers that a rank offloads to: host memory and, where directories are given, files; and the threads that carry
// bytes between them and the device.
//
// Transfers run beside the compute, each direction in the order given. What a transfer works on must live until its
// Completion has been waited for, or until drain(); so must the texts of its About, for the timeline. All calls come
// from the rank's thread. A dry one leases addresses and moves nothing; where it has a clock, transfers take their
// time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "zeepo/base/pace.h"
#include "zeepo/base/timeline.h"
#include "zeepo/device/stream.h"
#include "zeepo/device/worker.h"
#include "zeepo/memory/arena_tier.h"
#include "zeepo/memory/file_store.h"
#include "zeepo/memory/transfer_lane.h"

namespace zeepo {

// Bytes carried so far.
struct LinkBytes {
  std::int64_t to_device = 0, to_host = 0, read = 0, written = 0;
  friend LinkBytes operator-(const LinkBytes& a, const LinkBytes& b) {
    return {a.to_device - b.to_device, a.to_host - b.to_host, a.read - b.read, a.written - b.written};
  }
};

class LowerTiers {
 public:
  struct Options {
    std::int64_t host_bytes = 0;                    // the budget
    std::vector<std::filesystem::path> nvme_paths;  // none: no files
    std::int64_t nvme_bytes = 0;                    // the size of the files, allocated in the constructor; 0: no file
    bool reads_others_files = false;                // that others have written: see to_device() of FileParts
    std::int64_t staging_bytes = 4 << 20;  // of each buffer between a device and files, of which there are four
    double link_bytes_per_second = 0;      // a simulated link to the device, each way; 0: as fast as it goes
    double nvme_bytes_per_second = 0;      // simulated files
    IoOptions io = {};                     // of the files' engine
    Timeline* timeline = nullptr;          // must outlive the tiers
  };

  // Offloads from the device of `compute`; work on host memory is done on `host_stream`. On a dry stream addresses
  // without memory or files behind them, without end.
  LowerTiers(const Options& options, Stream& compute, Stream& host_stream);

  // Throws Error for nvme without directories, and for the device.
  Tier& at(Place place);
  ArenaTier& host() { return *host_; }
  SwapTier* nvme() { return files_ ? &files_->tier() : nullptr; }
  Stream& host_stream() { return host_stream_; }

  // `bytes` of a block from `offset` on, to device memory or from it, once what the compute stream has been given so
  // far is done. A transfer up starts when `after` is done too.
  Completion to_device(const Block& from, std::size_t offset, void* device, std::size_t bytes, const About& about,
                       std::vector<Completion> after = {});
  // The same of files that others have written, each part to its place from `device` on. The parts are borrowed until
  // the transfer is done.
  Completion to_device(std::span<const FilePart> from, void* device, const About& about);
  Completion from_device(const void* device, const Block& to, std::size_t offset, std::size_t bytes,
                         const About& about);
  // A block in files to host memory or from it; in whole pages, however many of their bytes are wanted.
  Completion read(const Block& from, std::size_t offset, std::byte* host, std::size_t bytes, const About& about,
                  std::vector<Completion> after = {});
  Completion write(const std::byte* host, const Block& to, std::size_t offset, std::size_t bytes, const About& about);
  // Host memory to device memory.
  Completion upload(const std::byte* host, void* device, std::size_t bytes, const About& about);
  // Between host and device memory on threads of their own, past all that is queued on the others: for what the host
  // waits for in the middle of a step, or has just made. They start when `after` is done, and are done one after
  // another.
  Completion upload_out_of_band(std::vector<LinkCopy> copies, const About& about, std::vector<Completion> after);
  Completion download_out_of_band(std::vector<LinkCopy> copies, const About& about, std::vector<Completion> after);
  // The same for snapshots: beside all other transfers, none of which waits for it.
  Completion download_snapshot(const void* device, std::byte* host, std::size_t bytes, const About& about,
                               std::vector<Completion> after);

  // Tells the files' engine, once, which host memory most transfers pass through, besides the buffers here; later calls
  // do nothing. The blocks may be gone before the tiers are.
  void register_buffers(const std::vector<const Block*>& blocks);
  // How files are read and written, for the log; empty where there are none.
  std::string description() const { return files_ ? files_->description() : ""; }

  // Pages of files that had a wrong checksum at first.
  PagesReadAgain read_again() const { return files_ ? files_->read_again() : PagesReadAgain{}; }

  // What the buffers between the device and files take of host memory.
  std::int64_t staging_bytes() const;
  // Waits until nothing is on its way; then throws what any of it threw.
  void drain();
  // Waits for a completion, counting the time as stalled on `place`.
  void wait(Completion& completion, Place place);
  double stalled_seconds(Place place) const { return stalled_seconds_[static_cast<std::size_t>(place)]; }
  const LinkBytes& carried() const { return carried_; }

 private:
  TransferLane lane(Pace& pace, const TransferLane::Rows& rows, std::size_t staging_bytes);
  static Completion copy(TransferLane& lane, std::vector<LinkCopy> copies, const About& about, Point start,
                         std::vector<Completion> after);
  Point now() const;
  // In a dry pass: done when the clock says, where it has one.
  double simulated_start(const std::vector<Completion>& after) const;
  Completion simulated_copy(SimulatedTime::Lane lane, std::size_t bytes, const std::vector<Completion>& after);
  Completion simulated_move(SimulatedTime::Lane lane, std::size_t bytes, const std::vector<Completion>& after);
  Completion simulated_file(SimulatedTime::Lane lane, std::size_t bytes, const std::vector<Completion>& after);
  bool in_files(const Block& block) const { return files_ && block.in(files_->tier()); }

  Stream& compute_;
  Stream& host_stream_;
  bool dry_;
  SimulatedTime* time_;  // of a dry pass, may be null
  Timeline* timeline_;
  Pace up_pace_, down_pace_;
  std::unique_ptr<ArenaTier> host_;
  std::unique_ptr<FileStore> files_;  // null: no directories
  std::array<double, kPlaces.size()> stalled_seconds_{};
  LinkBytes carried_;
  // Last: their jobs use what stands above. Jobs of a later one wait for those of an earlier one, so the order stays.
  // The two out of band wait for each other's and for work of who asked, who drains before this goes.
  WorkerOnDemand writer_;
  TransferLane down_;
  WorkerOnDemand reader_;
  TransferLane up_, down_out_of_band_, up_out_of_band_, down_snapshot_;
};

}  // namespace zeepo
