#include "zeepo/memory/lower_tiers.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/first_failure.h"

namespace zeepo {
namespace {

constexpr std::size_t kBoundlessHost = std::size_t{1} << 60;
// Memory that files are read into and written from directly.
constexpr std::size_t kHostAlignment = kDirectAlignment;

std::unique_ptr<ArenaTier> host_tier(const LowerTiers::Options& options, Stream& compute) {
  if (compute.dry())
    return std::make_unique<ArenaTier>("host", kBoundlessHost, ArenaTier::Backing::none, kHostAlignment);
  std::unique_ptr<ArenaTier> tier;
  dispatch(compute, [&](auto& s) {
    auto memory = transfer_memory(s, "host", static_cast<std::size_t>(options.host_bytes));
    tier = std::make_unique<ArenaTier>("host", std::move(memory), kHostAlignment);
  });
  return tier;
}

std::unique_ptr<FileStore> file_store(const LowerTiers::Options& options, bool dry) {
  if (options.nvme_paths.empty()) return nullptr;
  if (dry) return FileStore::dry();
  return std::make_unique<FileStore>(FileStore::Options{.directories = options.nvme_paths,
                                                        .bytes = options.nvme_bytes,
                                                        .bytes_per_second = options.nvme_bytes_per_second,
                                                        .reads_others = options.reads_others_files,
                                                        .io = options.io});
}

std::size_t staging_bytes_of(const LowerTiers::Options& options) {
  if (options.nvme_paths.empty()) return 0;
  return SwapTier::whole_pages(static_cast<std::size_t>(options.staging_bytes));
}

using Simulated = SimulatedTime::Resource;
using SimulatedLane = SimulatedTime::Lane;

std::int64_t page_bytes(std::size_t bytes) { return static_cast<std::int64_t>(SwapTier::whole_pages(bytes)); }

void wait_all(std::vector<Completion>& completions) {
  for (auto& completion : completions) completion.wait();
}

}  // namespace

LowerTiers::LowerTiers(const Options& options, Stream& compute, Stream& host_stream)
    : compute_(compute),
      host_stream_(host_stream),
      dry_(compute.dry()),
      time_(simulated_time(compute)),
      timeline_(options.timeline),
      up_pace_(options.link_bytes_per_second),
      down_pace_(options.link_bytes_per_second),
      host_(host_tier(options, compute)),
      files_(file_store(options, dry_)),
      down_(lane(down_pace_, {TimelineRow::to_host, TimelineRow::writes_from_device}, staging_bytes_of(options))),
      up_(lane(up_pace_, {TimelineRow::to_device, TimelineRow::reads_for_device}, staging_bytes_of(options))),
      down_out_of_band_(lane(down_pace_, {TimelineRow::to_host_out_of_band, TimelineRow::writes_from_device}, 0)),
      up_out_of_band_(lane(up_pace_, {TimelineRow::to_device_out_of_band, TimelineRow::reads_for_device}, 0)),
      down_snapshot_(lane(down_pace_, {TimelineRow::snapshots, TimelineRow::writes_from_device}, 0)) {}

TransferLane LowerTiers::lane(Pace& pace, const TransferLane::Rows& rows, std::size_t staging_bytes) {
  std::unique_ptr<CopyLane> copies;
  dispatch(compute_, [&](auto& s) { copies = make_copy_lane(s); });
  std::array<Block, 2> staging;
  if (staging_bytes > 0)
    for (Block& buffer : staging) buffer = host_->allocate(staging_bytes, Kind::working);
  return TransferLane(std::move(copies), pace, timeline_, rows, std::move(staging));
}

void LowerTiers::register_buffers(const std::vector<const Block*>& blocks) {
  if (!files_) return;
  std::vector<std::span<std::byte>> ranges;
  for (const TransferLane* lane : {&up_, &down_})
    for (const Block& buffer : lane->staging()) ranges.emplace_back(buffer.data(), buffer.bytes());
  for (const Block* block : blocks) ranges.emplace_back(block->data(), block->bytes());
  files_->register_memory(ranges);
}

std::int64_t LowerTiers::staging_bytes() const {
  return static_cast<std::int64_t>(up_.staging_bytes() + down_.staging_bytes());
}

Tier& LowerTiers::at(Place place) {
  if (place == Place::host) return *host_;
  if (place == Place::nvme && files_) return files_->tier();
  if (place == Place::nvme) throw Error("nvme: no directory to keep files in; give --nvme-path DIR");
  throw Error("lower tiers: the device is not one of them");
}

// After what the compute stream has been given so far, and `after`.
double LowerTiers::simulated_start(const std::vector<Completion>& after) const {
  double start = time_->computed();
  for (const Completion& earlier : after) start = std::max(start, earlier.simulated_end());
  return start;
}

Completion LowerTiers::simulated_copy(SimulatedLane lane, std::size_t bytes, const std::vector<Completion>& after) {
  if (time_ == nullptr) return {};
  const bool up = lane == SimulatedLane::up || lane == SimulatedLane::up_out_of_band;
  const SimulatedTime::Part part =
      up ? SimulatedTime::Part{Simulated::to_device, static_cast<double>(bytes) / time_->rates().to_device}
         : SimulatedTime::Part{Simulated::to_host, static_cast<double>(bytes) / time_->rates().to_host};
  return Completion::at(*time_, time_->run(lane, simulated_start(after), {&part, 1}));
}

// Between files and the device, through staging buffers.
Completion LowerTiers::simulated_move(SimulatedLane lane, std::size_t bytes, const std::vector<Completion>& after) {
  if (time_ == nullptr) return {};
  const auto size = static_cast<double>(bytes);
  const double piece = std::min(1.0, static_cast<double>(up_.staging()[0].bytes()) / size);
  const SimulatedRates& rates = time_->rates();
  const double start = simulated_start(after);
  const double end = lane == SimulatedLane::up
                         ? time_->run_pipelined(lane, start, {Simulated::files, size / rates.read},
                                                {Simulated::to_device, size / rates.to_device}, piece)
                         : time_->run_pipelined(lane, start, {Simulated::to_host, size / rates.to_host},
                                                {Simulated::files, size / rates.write}, piece);
  return Completion::at(*time_, end);
}

// Between files and host memory: the compute stream has no part in it.
Completion LowerTiers::simulated_file(SimulatedLane lane, std::size_t bytes, const std::vector<Completion>& after) {
  if (time_ == nullptr) return {};
  double start = time_->now();
  for (const Completion& earlier : after) start = std::max(start, earlier.simulated_end());
  const SimulatedRates& rates = time_->rates();
  const SimulatedTime::Part part{
      Simulated::files, static_cast<double>(bytes) / (lane == SimulatedLane::reader ? rates.read : rates.write)};
  return Completion::at(*time_, time_->run(lane, start, {&part, 1}));
}

Point LowerTiers::now() const {
  Point point;
  dispatch(compute_, [&](auto& s) { point = point_of(s); });
  return point;
}

Completion LowerTiers::copy(TransferLane& lane, std::vector<LinkCopy> copies, const About& about, Point start,
                            std::vector<Completion> after) {
  return lane.run([=, &lane, copies = std::move(copies), start = std::move(start), after = std::move(after)]() mutable {
    wait_all(after);
    lane.start_after(start);
    lane.copy(copies, about);
  });
}

Completion LowerTiers::to_device(const Block& from, std::size_t offset, void* device, std::size_t bytes,
                                 const About& about, std::vector<Completion> after) {
  if (bytes == 0) return {};
  if (dry_ && in_files(from)) return simulated_move(SimulatedLane::up, bytes, after);
  if (dry_) return simulated_copy(SimulatedLane::up, bytes, after);
  carried_.to_device += static_cast<std::int64_t>(bytes);
  if (!in_files(from)) return copy(up_, {{from.data() + offset, device, bytes}}, about, now(), std::move(after));
  carried_.read += page_bytes(bytes);
  return up_.run([=, this, at = from.offset() + offset, start = now(), after = std::move(after)]() mutable {
    wait_all(after);
    up_.start_after(start);
    up_.read(files_->file(), at, static_cast<std::byte*>(device), bytes, about);
  });
}

Completion LowerTiers::to_device(std::span<const FilePart> from, void* device, const About& about) {
  const std::size_t bytes = wanted_bytes(from);
  if (bytes == 0) return {};
  if (dry_) return simulated_move(SimulatedLane::up, bytes, {});
  carried_.to_device += static_cast<std::int64_t>(bytes);
  carried_.read += static_cast<std::int64_t>(block_bytes(from));
  return up_.run([=, this, start = now()] {
    up_.start_after(start);
    up_.read(files_->engine(), from, static_cast<std::byte*>(device), about);
  });
}

Completion LowerTiers::from_device(const void* device, const Block& to, std::size_t offset, std::size_t bytes,
                                   const About& about) {
  if (bytes == 0) return {};
  if (dry_ && in_files(to)) return simulated_move(SimulatedLane::down, bytes, {});
  if (dry_) return simulated_copy(SimulatedLane::down, bytes, {});
  carried_.to_host += static_cast<std::int64_t>(bytes);
  if (!in_files(to)) return copy(down_, {{device, to.data() + offset, bytes}}, about, now(), {});
  carried_.written += page_bytes(bytes);
  return down_.run([=, this, at = to.offset() + offset, start = now()] {
    down_.start_after(start);
    down_.write(static_cast<const std::byte*>(device), files_->file(), at, bytes, about);
  });
}

Completion LowerTiers::upload(const std::byte* host, void* device, std::size_t bytes, const About& about) {
  if (dry_) return simulated_copy(SimulatedLane::up, bytes, {});
  carried_.to_device += static_cast<std::int64_t>(bytes);
  return copy(up_, {{host, device, bytes}}, about, now(), {});
}

Completion LowerTiers::upload_out_of_band(std::vector<LinkCopy> copies, const About& about,
                                          std::vector<Completion> after) {
  const std::size_t bytes = bytes_of(copies);
  if (dry_) return simulated_copy(SimulatedLane::up_out_of_band, bytes, after);
  carried_.to_device += static_cast<std::int64_t>(bytes);
  return copy(up_out_of_band_, std::move(copies), about, now(), std::move(after));
}

Completion LowerTiers::download_out_of_band(std::vector<LinkCopy> copies, const About& about,
                                            std::vector<Completion> after) {
  const std::size_t bytes = bytes_of(copies);
  if (dry_) return simulated_copy(SimulatedLane::down_out_of_band, bytes, after);
  carried_.to_host += static_cast<std::int64_t>(bytes);
  return copy(down_out_of_band_, std::move(copies), about, now(), std::move(after));
}

Completion LowerTiers::download_snapshot(const void* device, std::byte* host, std::size_t bytes, const About& about,
                                         std::vector<Completion> after) {
  if (dry_) return simulated_copy(SimulatedLane::snapshot, bytes, after);
  return copy(down_snapshot_, {{device, host, bytes}}, about, now(), std::move(after));
}

Completion LowerTiers::read(const Block& from, std::size_t offset, std::byte* host, std::size_t bytes,
                            const About& about, std::vector<Completion> after) {
  if (bytes == 0) return {};
  if (dry_) return simulated_file(SimulatedLane::reader, bytes, after);
  carried_.read += page_bytes(bytes);
  return reader_.run([=, this, at = from.offset() + offset, after = std::move(after)]() mutable {
    wait_all(after);
    const Span span(timeline_, TimelineRow::reads, "read", about);
    files_->file().read(static_cast<std::int64_t>(at), {host, SwapTier::whole_pages(bytes)}).wait();
  });
}

Completion LowerTiers::write(const std::byte* host, const Block& to, std::size_t offset, std::size_t bytes,
                             const About& about) {
  if (bytes == 0) return {};
  if (dry_) return simulated_file(SimulatedLane::writer, bytes, {});
  carried_.written += page_bytes(bytes);
  return writer_.run([=, this, at = to.offset() + offset] {
    const Span span(timeline_, TimelineRow::writes, "write", about);
    files_->file().write(static_cast<std::int64_t>(at), {host, SwapTier::whole_pages(bytes)}).wait();
  });
}

void LowerTiers::drain() {
  FirstFailure failure;  // of one thread: the work of the others ends no sooner for it
  const auto drain = [&](auto&... threads) { (failure.outlast([&] { threads.drain(); }), ...); };
  drain(up_, reader_, down_, writer_, down_out_of_band_, up_out_of_band_, down_snapshot_);
  failure.rethrow();
}

void LowerTiers::wait(Completion& completion, Place place) {
  const Span span(timeline_, TimelineRow::compute, "wait for", {name_of(place)}, kLeastWait);
  double& stalled = stalled_seconds_[static_cast<std::size_t>(place)];
  if (time_ != nullptr) {
    const double before = time_->now();
    completion.wait();
    stalled += time_->now() - before;
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  completion.wait();
  stalled += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace zeepo
