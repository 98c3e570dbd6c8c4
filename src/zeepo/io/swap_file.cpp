#include "zeepo/io/swap_file.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr auto kPage = static_cast<std::size_t>(SwapFile::kPageBytes);
constexpr int kMoreReads = 2;  // of a page with a wrong checksum

std::uint64_t checksum(std::span<const std::byte> page) { return XXH3_64bits(page.data(), page.size()); }

}  // namespace

class SwapFile::WritePending final : public IoCompletion::Pending {
 public:
  WritePending(SwapFile& swap, std::size_t first, std::size_t pages, IoCompletion inner)
      : swap_(swap), first_(first), pages_(pages), inner_(std::move(inner)) {}
  void wait() override {
    try {
      inner_.wait();
    } catch (const Error&) {
      swap_.mark(first_, pages_, Page::lost);
      throw;
    }
    swap_.mark(first_, pages_, Page::written);
  }
  bool done() const override { return inner_.done(); }

 private:
  SwapFile& swap_;
  std::size_t first_, pages_;
  IoCompletion inner_;
};

class SwapFile::ReadPending final : public IoCompletion::Pending {
 public:
  ReadPending(SwapFile& swap, std::int64_t offset, std::span<std::byte> memory, std::vector<std::uint64_t> expected,
              IoCompletion inner)
      : swap_(swap), offset_(offset), memory_(memory), expected_(std::move(expected)), inner_(std::move(inner)) {}
  void wait() override {
    inner_.wait();
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      const std::span<std::byte> page = memory_.subspan(i * kPage, kPage);
      if (checksum(page) != expected_[i])
        swap_.read_page_again(offset_ + static_cast<std::int64_t>(i) * kPageBytes, page, expected_[i]);
    }
  }
  bool done() const override { return inner_.done(); }

 private:
  SwapFile& swap_;
  std::int64_t offset_;
  std::span<std::byte> memory_;
  std::vector<std::uint64_t> expected_;
  IoCompletion inner_;
};

SwapFile::SwapFile(IoEngine& engine, const std::vector<std::filesystem::path>& directories, std::int64_t bytes)
    : engine_(engine), directories_(directories), bytes_(round_up(bytes)) {
  if (directories.empty()) throw Error("swap file: no directory to put it in; name one with --nvme-path");
  if (bytes < 1) throw Error("swap file: {} bytes: must be at least 1", bytes);
  const auto count = static_cast<std::int64_t>(directories.size());
  const std::int64_t stripes = (bytes_ + kStripeBytes - 1) / kStripeBytes;
  // One file need not be filled up to a stripe.
  const std::int64_t file_bytes = count == 1 ? bytes_ : (stripes + count - 1) / count * kStripeBytes;
  for (const auto& directory : directories)
    files_.emplace_back(directory, file_bytes, fmt::format("the swap file in {}", directory.string()));
  pages_.resize(static_cast<std::size_t>(bytes_ / kPageBytes));
  checksums_.resize(pages_.size());
}

std::string SwapFile::description() const {
  std::string directories, access;
  for (std::size_t i = 0; i < files_.size(); ++i) directories += (i > 0 ? ", " : "") + directories_[i].string();
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (!files_[i].file().direct)
      access += fmt::format("{}buffered under {} (O_DIRECT: {})", access.empty() ? "" : ", ", directories_[i].string(),
                            files_[i].why_buffered());
  return fmt::format("{} file{} under {}; {}; {}", files_.size(), files_.size() == 1 ? "" : "s", directories,
                     engine_.name(), access.empty() ? "O_DIRECT" : access);
}

IoBytes SwapFile::moved() const {
  const std::lock_guard lock(mutex_);
  return moved_;
}

PagesReadAgain SwapFile::read_again() const {
  const std::lock_guard lock(mutex_);
  return read_again_;
}

void SwapFile::read_page_again(std::int64_t offset, std::span<std::byte> page, std::uint64_t expected) {
  const Place at = place(offset);
  const std::string where = fmt::format("{}: {} bytes at offset {}", at.file->name, kPageBytes, at.offset);
  for (int read = 0; read < kMoreReads; ++read) {
    engine_.submit(IoDirection::read, transfers(offset, page)).wait();
    if (checksum(page) != expected) continue;
    const std::lock_guard lock(mutex_);
    ++read_again_.pages;
    read_again_.last = where;
    return;
  }
  throw Error("cannot read {}: the disk returned other bytes than were written, {} times", where, kMoreReads + 1);
}

void SwapFile::check(const char* what, std::int64_t offset, std::span<const std::byte> memory) const {
  const auto size = static_cast<std::int64_t>(memory.size());
  if (offset < 0 || offset % kPageBytes != 0 || size % kPageBytes != 0)
    throw Error("swap file: {} {} bytes at offset {}: both must be multiples of the page of {} bytes", what, size,
                offset, kPageBytes);
  if (offset > bytes_ || size > bytes_ - offset)
    throw Error("swap file: {} {} bytes at offset {}: it has {} bytes", what, size, offset, bytes_);
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % kDirectAlignment != 0)
    throw Error("swap file: {} memory at {}: must be aligned to {} bytes", what, fmt::ptr(memory.data()),
                kDirectAlignment);
}

SwapFile::Place SwapFile::place(std::int64_t offset) const {
  const auto count = static_cast<std::int64_t>(files_.size());
  if (count == 1) return {&files_[0].file(), offset};
  const std::int64_t stripe = offset / kStripeBytes;
  return {&files_[static_cast<std::size_t>(stripe % count)].file(),
          stripe / count * kStripeBytes + offset % kStripeBytes};
}

std::vector<IoTransfer> SwapFile::transfers(std::int64_t offset, std::span<std::byte> memory) const {
  std::vector<IoTransfer> result;
  while (!memory.empty()) {
    const Place at = place(offset);
    const std::size_t bytes =
        files_.size() == 1 ? memory.size()
                           : std::min(memory.size(), static_cast<std::size_t>(kStripeBytes - offset % kStripeBytes));
    result.push_back({at.file, at.offset, memory.first(bytes)});
    memory = memory.subspan(bytes);
    offset += static_cast<std::int64_t>(bytes);
  }
  return result;
}

void SwapFile::mark(std::size_t first, std::size_t pages, Page state) {
  const std::lock_guard lock(mutex_);
  std::fill_n(pages_.begin() + static_cast<std::ptrdiff_t>(first), pages, state);
}

IoCompletion SwapFile::read(std::int64_t offset, std::span<std::byte> memory) {
  check("read of", offset, memory);
  const auto first = static_cast<std::size_t>(offset / kPageBytes), pages = memory.size() / kPage;
  std::vector<std::uint64_t> expected(pages);
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t page = 0; page < pages; ++page) {
      const char* why = nullptr;
      switch (pages_[first + page]) {
        case Page::written: break;
        case Page::never_written: why = "it was never written"; break;
        case Page::writing: why = "it is still being written; wait for that first"; break;
        case Page::lost: why = "its last write failed"; break;
      }
      if (why) {
        const Place at = place(offset + static_cast<std::int64_t>(page) * kPageBytes);
        throw Error("cannot read {}: {} bytes at offset {}: {}", at.file->name, kPageBytes, at.offset, why);
      }
      expected[page] = checksums_[first + page];
    }
    moved_.read += static_cast<std::int64_t>(memory.size());
  }
  auto inner = engine_.submit(IoDirection::read, transfers(offset, memory));
  return IoCompletion(std::make_unique<ReadPending>(*this, offset, memory, std::move(expected), std::move(inner)));
}

IoCompletion SwapFile::write(std::int64_t offset, std::span<const std::byte> memory) {
  check("write of", offset, memory);
  const auto first = static_cast<std::size_t>(offset / kPageBytes), pages = memory.size() / kPage;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t page = 0; page < pages; ++page)
      if (pages_[first + page] == Page::writing) {
        const Place at = place(offset + static_cast<std::int64_t>(page) * kPageBytes);
        throw Error("cannot write {}: {} bytes at offset {}: another write of them is in flight; wait for it first",
                    at.file->name, kPageBytes, at.offset);
      }
    std::fill_n(pages_.begin() + static_cast<std::ptrdiff_t>(first), pages, Page::writing);
    moved_.write += static_cast<std::int64_t>(memory.size());
  }
  IoCompletion inner;
  try {
    inner =
        engine_.submit(IoDirection::write, transfers(offset, {const_cast<std::byte*>(memory.data()), memory.size()}));
  } catch (...) {
    mark(first, pages, Page::lost);
    throw;
  }
  for (std::size_t page = 0; page < pages; ++page)
    checksums_[first + page] = checksum(memory.subspan(page * kPage, kPage));
  return IoCompletion(std::make_unique<WritePending>(*this, first, pages, std::move(inner)));
}

}  // namespace zeepo
