#include "zeepo/memory/lower_tiers.h"

#include <chrono>
#include <cstring>

#include "zeepo/base/error.h"
#include "zeepo/base/first_failure.h"
#include "zeepo/io/throttled/throttled_engine.h"

namespace zeepo {
namespace {

constexpr std::size_t kBoundless = std::size_t{1} << 50;
// Memory that files are read into and written from directly.
constexpr std::size_t kHostAlignment = 4096;

std::size_t whole_pages(std::size_t bytes) { return Arena::aligned(bytes, SwapTier::kPageBytes); }

}  // namespace

// One direction between the device and what lies below, with two buffers for what comes from files or goes there: one
// is copied while the other is read or written. Used by one thread, that of its jobs.
class LowerTiers::Lane {
 public:
  struct Rows {
    TimelineRow copies, files;
  };
  // No staging: for copies alone.
  Lane(LowerTiers& tiers, Pace& pace, std::size_t staging_bytes, const Rows& rows)
      : pace_(pace), timeline_(tiers.options_.timeline), rows_(rows) {
    dispatch(tiers.compute_, [&](auto& s) { device_ = make_copy_lane(s); });
    if (!tiers.nvme_ || staging_bytes == 0) return;
    for (auto& buffer : buffers_) buffer = tiers.host_->allocate(staging_bytes, Kind::working);
  }

  void start_after(const Point& point) { device_->start_after(point); }

  std::int64_t staging_bytes() const { return static_cast<std::int64_t>(buffers_[0].bytes() + buffers_[1].bytes()); }

  const std::array<Block, 2>& buffers() const { return buffers_; }

  void copy(const void* from, void* to, std::size_t bytes, const About& about) {
    const Span span(timeline_, rows_.copies, "copy", about);
    const auto start = Pace::Clock::now();
    device_->copy(from, to, bytes);
    pace_.take(bytes, start);
  }

  void read(SwapFile& file, std::size_t offset, std::byte* device, std::size_t bytes, const About& about) {
    const std::size_t step = buffers_[0].bytes();
    Moving next;
    const auto start = [&](std::size_t at) {
      next.start(file.read(static_cast<std::int64_t>(offset + at),
                           buffer(at / step).first(whole_pages(std::min(step, bytes - at)))));
    };
    start(0);
    for (std::size_t at = 0; at < bytes; at += step) {
      finish(next, "read", about);
      if (at + step < bytes) start(at + step);
      copy(buffer(at / step).data(), device + at, std::min(step, bytes - at), about);
    }
  }

  void write(const std::byte* device, SwapFile& file, std::size_t offset, std::size_t bytes, const About& about) {
    const std::size_t step = buffers_[0].bytes();
    std::array<Moving, 2> writing;  // by buffer
    std::size_t at = 0;
    for (; at < bytes; at += step) {
      const std::size_t wanted = std::min(step, bytes - at), whole = whole_pages(wanted);
      Moving& current = writing[at / step % 2];
      finish(current, "write", about);
      const auto to = buffer(at / step);
      copy(device + at, to.data(), wanted, about);
      std::memset(to.data() + wanted, 0, whole - wanted);
      current.start(file.write(static_cast<std::int64_t>(offset + at), to.first(whole)));
    }
    for (const std::size_t buffer : {at / step, at / step + 1}) finish(writing[buffer % 2], "write", about);
  }

 private:
  // A buffer on its way from files or to them.
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
  std::span<std::byte> buffer(std::size_t i) { return {buffers_[i % 2].data(), buffers_[i % 2].bytes()}; }

  // Of two under way, the later one is marked from when the earlier one is done.
  void finish(Moving& moving, std::string_view verb, const About& about) {
    if (!std::exchange(moving.under_way, false)) return;
    moving.done.wait();
    const auto end = Timeline::Clock::now();
    if (timeline_) timeline_->add(rows_.files, verb, about, std::max(moving.began, moved_), end);
    moved_ = end;
  }

  Pace& pace_;
  std::unique_ptr<CopyLane> device_;
  Timeline* timeline_;
  Rows rows_;
  Timeline::Clock::time_point moved_;  // when the last one was done
  std::array<Block, 2> buffers_;
};

LowerTiers::LowerTiers(const Options& options, Stream& compute, Stream& host_stream)
    : options_(options),
      compute_(compute),
      host_stream_(host_stream),
      dry_(compute.dry()),
      up_pace_(options.link_bytes_per_second),
      down_pace_(options.link_bytes_per_second) {
  const auto budget = [&](std::int64_t bytes) { return dry_ ? kBoundless : static_cast<std::size_t>(bytes); };
  if (dry_) host_ = std::make_unique<ArenaTier>("host", kBoundless, ArenaTier::Backing::none, kHostAlignment);
  dispatch(compute, [&](auto& s) {
    host_ = std::make_unique<ArenaTier>("host", transfer_memory(s, "host", budget(options.host_bytes)), kHostAlignment);
  });
  if (!options.nvme_paths.empty()) {
    if (!dry_) {
      engine_ = make_io_engine(options.io);
      if (options.nvme_bytes_per_second > 0)
        slow_engine_ = std::make_unique<ThrottledEngine>(*engine_, options.nvme_bytes_per_second);
      file_ =
          std::make_unique<SwapFile>(slow_engine_ ? *slow_engine_ : *engine_, options.nvme_paths, options.nvme_bytes);
    }
    nvme_ = std::make_unique<SwapTier>("nvme", budget(options.nvme_bytes), file_.get());
  }
  const auto staging_bytes = whole_pages(static_cast<std::size_t>(options.staging_bytes));
  up_lane_ = std::make_unique<Lane>(*this, up_pace_, staging_bytes,
                                    Lane::Rows{TimelineRow::to_device, TimelineRow::reads_for_device});
  down_lane_ = std::make_unique<Lane>(*this, down_pace_, staging_bytes,
                                      Lane::Rows{TimelineRow::to_host, TimelineRow::writes_from_device});
  up_aside_lane_ = std::make_unique<Lane>(*this, up_pace_, 0,
                                          Lane::Rows{TimelineRow::to_device_aside, TimelineRow::reads_for_device});
  down_aside_lane_ = std::make_unique<Lane>(*this, down_pace_, 0,
                                            Lane::Rows{TimelineRow::to_host_aside, TimelineRow::writes_from_device});
}

LowerTiers::~LowerTiers() = default;

void LowerTiers::register_buffers(const std::vector<const Block*>& blocks) {
  if (!file_ || std::exchange(registered_, true)) return;
  std::vector<std::span<std::byte>> ranges;
  for (const Lane* lane : {up_lane_.get(), down_lane_.get()})
    for (const Block& buffer : lane->buffers()) ranges.emplace_back(buffer.data(), buffer.bytes());
  for (const Block* block : blocks) ranges.emplace_back(block->data(), block->bytes());
  engine_->register_ranges(ranges);
}

std::int64_t LowerTiers::staging_bytes() const { return up_lane_->staging_bytes() + down_lane_->staging_bytes(); }

Tier& LowerTiers::at(Place place) {
  if (place == Place::host) return *host_;
  if (place == Place::nvme && nvme_) return *nvme_;
  if (place == Place::nvme) throw Error("nvme: no directory to keep files in; give --nvme-path DIR");
  throw Error("lower tiers: the device is not one of them");
}

Point LowerTiers::now() const {
  Point point;
  dispatch(compute_, [&](auto& s) { point = point_of(s); });
  return point;
}

Completion LowerTiers::run(std::unique_ptr<Worker>& worker, std::function<void()> job) {
  if (!worker) worker = std::make_unique<Worker>();
  return worker->run(std::move(job));
}

Completion LowerTiers::to_device(const Block& from, std::size_t offset, void* device, std::size_t bytes,
                                 const About& about, std::vector<Completion> after) {
  if (dry_) return {};
  carried_.to_device += static_cast<std::int64_t>(bytes);
  if (!in_files(from))
    return run(up_, [=, this, data = from.data() + offset, start = now()]() mutable {
      for (auto& earlier : after) earlier.wait();
      up_lane_->start_after(start);
      up_lane_->copy(data, device, bytes, about);
    });
  carried_.read += static_cast<std::int64_t>(whole_pages(bytes));
  return run(up_, [=, this, offset = from.offset() + offset, start = now()]() mutable {
    for (auto& earlier : after) earlier.wait();
    up_lane_->start_after(start);
    up_lane_->read(nvme_->file(), offset, static_cast<std::byte*>(device), bytes, about);
  });
}

Completion LowerTiers::from_device(const void* device, const Block& to, std::size_t offset, std::size_t bytes,
                                   const About& about) {
  if (dry_) return {};
  carried_.to_host += static_cast<std::int64_t>(bytes);
  if (!in_files(to))
    return run(down_, [=, this, data = to.data() + offset, start = now()] {
      down_lane_->start_after(start);
      down_lane_->copy(device, data, bytes, about);
    });
  carried_.written += static_cast<std::int64_t>(whole_pages(bytes));
  return run(down_, [=, this, offset = to.offset() + offset, start = now()] {
    down_lane_->start_after(start);
    down_lane_->write(static_cast<const std::byte*>(device), nvme_->file(), offset, bytes, about);
  });
}

Completion LowerTiers::upload(const std::byte* host, void* device, std::size_t bytes, const About& about) {
  if (dry_) return {};
  carried_.to_device += static_cast<std::int64_t>(bytes);
  return run(up_, [=, this, start = now()] {
    up_lane_->start_after(start);
    up_lane_->copy(host, device, bytes, about);
  });
}

Completion LowerTiers::copy_aside(std::unique_ptr<Worker>& worker, Lane& lane, const void* from, void* to,
                                  std::size_t bytes, const About& about, std::vector<Completion> after) {
  return run(worker, [=, &lane, start = now()]() mutable {
    for (auto& earlier : after) earlier.wait();
    lane.start_after(start);
    lane.copy(from, to, bytes, about);
  });
}

Completion LowerTiers::upload_aside(const std::byte* host, void* device, std::size_t bytes, const About& about,
                                    std::vector<Completion> after) {
  if (dry_) return {};
  carried_.to_device += static_cast<std::int64_t>(bytes);
  return copy_aside(up_aside_, *up_aside_lane_, host, device, bytes, about, std::move(after));
}

Completion LowerTiers::download_aside(const void* device, std::byte* host, std::size_t bytes, const About& about,
                                      std::vector<Completion> after) {
  if (dry_) return {};
  carried_.to_host += static_cast<std::int64_t>(bytes);
  return copy_aside(down_aside_, *down_aside_lane_, device, host, bytes, about, std::move(after));
}

Completion LowerTiers::read(const Block& from, std::size_t offset, std::byte* host, std::size_t bytes,
                            const About& about, std::vector<Completion> after) {
  if (dry_) return {};
  carried_.read += static_cast<std::int64_t>(whole_pages(bytes));
  return run(reader_, [=, this, at = from.offset() + offset]() mutable {
    for (auto& earlier : after) earlier.wait();
    const Span span(options_.timeline, TimelineRow::reads, "read", about);
    nvme_->file().read(static_cast<std::int64_t>(at), {host, whole_pages(bytes)}).wait();
  });
}

Completion LowerTiers::write(const std::byte* host, const Block& to, std::size_t offset, std::size_t bytes,
                             const About& about) {
  if (dry_) return {};
  carried_.written += static_cast<std::int64_t>(whole_pages(bytes));
  return run(writer_, [=, this, at = to.offset() + offset] {
    const Span span(options_.timeline, TimelineRow::writes, "write", about);
    nvme_->file().write(static_cast<std::int64_t>(at), {host, whole_pages(bytes)}).wait();
  });
}

void LowerTiers::drain() {
  FirstFailure failure;  // of one thread: the work of the others ends no sooner for it
  for (auto* worker : {&up_, &reader_, &down_, &writer_, &down_aside_, &up_aside_})
    failure.outlast([&] {
      if (*worker) (*worker)->run([] {}).wait();
    });
  failure.rethrow();
}

void LowerTiers::wait(Completion& completion, Place place) {
  const Span span(options_.timeline, TimelineRow::compute, "wait for", {name_of(place)}, kLeastWait);
  const auto start = std::chrono::steady_clock::now();
  completion.wait();
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  stalled_seconds_[static_cast<std::size_t>(place)] += waited.count();
}

}  // namespace zeepo
