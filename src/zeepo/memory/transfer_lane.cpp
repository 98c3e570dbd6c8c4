#include "zeepo/memory/transfer_lane.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "zeepo/memory/swap_tier.h"

namespace zeepo {

TransferLane::TransferLane(std::unique_ptr<CopyLane> copies, Pace& pace, Timeline* timeline, const Rows& rows,
                           std::array<Block, 2> staging)
    : copies_(std::move(copies)), pace_(pace), timeline_(timeline), rows_(rows), staging_(std::move(staging)) {}

std::size_t bytes_of(std::span<const LinkCopy> copies) {
  std::size_t bytes = 0;
  for (const LinkCopy& one : copies) bytes += one.bytes;
  return bytes;
}

void TransferLane::copy(std::span<const LinkCopy> copies, const About& about) {
  const Span span(timeline_, rows_.copies, "copy", about);
  const auto start = Pace::Clock::now();
  copies_->copy(copies);
  pace_.take(bytes_of(copies), start);
}

void TransferLane::copy_one(const void* from, void* to, std::size_t bytes, const About& about) {
  const LinkCopy one{from, to, bytes};
  copy({&one, 1}, about);
}

void TransferLane::read(SwapFile& file, std::size_t offset, std::byte* device, std::size_t bytes, const About& about) {
  const std::size_t step = staging_[0].bytes();
  Moving next;
  const auto start = [&](std::size_t at) {
    next.start(file.read(static_cast<std::int64_t>(offset + at),
                         buffer(at / step).first(SwapTier::whole_pages(std::min(step, bytes - at)))));
  };
  start(0);
  for (std::size_t at = 0; at < bytes; at += step) {
    finish(next, "read", about);
    if (at + step < bytes) start(at + step);
    copy_one(buffer(at / step).data(), device + at, std::min(step, bytes - at), about);
  }
}

// The files are looked at again after the reads: what was written meanwhile may be in the bytes.
void TransferLane::read(IoEngine& engine, std::span<const FilePart> parts, std::byte* device, const About& about) {
  const auto check_files = [&] {
    for (const FilePart& part : parts) part.file->check_unchanged();
  };
  check_files();
  const std::vector<FileLoad> loads = loads_of(parts, staging_[0].bytes());
  Moving next;
  const auto start = [&](std::size_t i) {
    std::vector<IoTransfer> reads;
    for (const FileLoad::Blocks& blocks : loads[i].blocks)
      blocks.file->add_reads(blocks.offset, buffer(i).subspan(blocks.at, blocks.bytes), reads);
    next.start(engine.submit(IoDirection::read, reads));
  };
  if (!loads.empty()) start(0);
  for (std::size_t i = 0; i < loads.size(); ++i) {
    finish(next, "read", about);
    if (i + 1 < loads.size()) start(i + 1);
    std::vector<LinkCopy> copies;
    for (const FileLoad::Copy& one : loads[i].copies)
      copies.push_back({buffer(i).data() + one.from, device + one.to, one.bytes});
    copy(copies, about);
  }
  check_files();
}

void TransferLane::write(const std::byte* device, SwapFile& file, std::size_t offset, std::size_t bytes,
                         const About& about) {
  const std::size_t step = staging_[0].bytes();
  std::array<Moving, 2> writing;  // by buffer
  std::size_t at = 0;
  for (; at < bytes; at += step) {
    const std::size_t wanted = std::min(step, bytes - at), whole = SwapTier::whole_pages(wanted);
    Moving& current = writing[at / step % 2];
    finish(current, "write", about);
    const auto to = buffer(at / step);
    copy_one(device + at, to.data(), wanted, about);
    std::memset(to.data() + wanted, 0, whole - wanted);
    current.start(file.write(static_cast<std::int64_t>(offset + at), to.first(whole)));
  }
  for (const std::size_t buffer : {at / step, at / step + 1}) finish(writing[buffer % 2], "write", about);
}

// Of two in flight, the later one is marked from when the earlier one is done: spans of a row lie apart.
void TransferLane::finish(Moving& moving, std::string_view verb, const About& about) {
  if (!std::exchange(moving.under_way, false)) return;
  moving.done.wait();
  const auto end = Timeline::Clock::now();
  if (timeline_) timeline_->add(rows_.files, verb, about, std::max(moving.began, last_moved_), end);
  last_moved_ = end;
}

}  // namespace zeepo
