#include "zeepo/memory/file_store.h"

#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/io/throttled/throttled_engine.h"

namespace zeepo {
namespace {

constexpr std::size_t kBoundless = std::size_t{1} << 60;

std::unique_ptr<IoEngine> engine_for(const FileStore::Options& options) {
  if (options.bytes < 0) throw Error("nvme: {} bytes: must be at least 0", options.bytes);
  return options.bytes > 0 || options.reads_others ? make_io_engine(options.io) : nullptr;
}

}  // namespace

FileStore::FileStore(const Options& options)
    : engine_(engine_for(options)),
      throttled_(engine_ && options.bytes_per_second > 0
                     ? std::make_unique<ThrottledEngine>(*engine_, options.bytes_per_second)
                     : nullptr),
      file_(options.bytes > 0 ? std::make_unique<SwapFile>(engine(), options.directories, options.bytes) : nullptr),
      tier_("nvme", static_cast<std::size_t>(options.bytes), file_.get()) {}

FileStore::FileStore(std::size_t boundless_bytes) : tier_("nvme", boundless_bytes, nullptr) {}

std::unique_ptr<FileStore> FileStore::dry() { return std::unique_ptr<FileStore>(new FileStore(kBoundless)); }

std::string FileStore::description() const {
  if (file_) return file_->description();
  return engine_ ? (throttled_ ? throttled_ : engine_)->name() : "";
}

void FileStore::register_memory(std::span<const std::span<std::byte>> ranges) {
  if (engine_ && !std::exchange(registered_, true)) engine_->register_ranges(ranges);
}

}  // namespace zeepo
