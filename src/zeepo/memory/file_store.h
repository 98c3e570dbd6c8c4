// The files of a rank: the engine that reads and writes them, one swap file striped over the directories, and the tier
// that leases its pages.
//
// Where nothing is to be kept (0 bytes) there is a tier and neither engine nor file: a share of the states that comes
// to no page is no fault. Where files of others are read, there is an engine all the same. A dry pass has neither, and
// a tier without end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "zeepo/io/engine.h"
#include "zeepo/io/swap_file.h"
#include "zeepo/memory/swap_tier.h"

namespace zeepo {

class FileStore {
 public:
  struct Options {
    std::vector<std::filesystem::path> directories;
    std::int64_t bytes = 0;       // the size of the files, allocated in the constructor
    double bytes_per_second = 0;  // of a simulated disk; 0: as fast as it goes
    bool reads_others = false;    // files that others have written are read too
    IoOptions io = {};
  };

  // Throws Error when a directory cannot be written, its disk is too full or the system refuses threads.
  explicit FileStore(const Options& options);
  // For a dry pass: addresses without end, no file.
  static std::unique_ptr<FileStore> dry();

  SwapTier& tier() { return tier_; }
  // Only for blocks of the tier that hold bytes.
  SwapFile& file() { return *file_; }
  // Only where there are files to read.
  IoEngine& engine() { return throttled_ ? *throttled_ : *engine_; }
  // Tells the engine, once, which memory most transfers pass through; later calls do nothing.
  void register_memory(std::span<const std::span<std::byte>> ranges);
  PagesReadAgain read_again() const { return file_ ? file_->read_again() : PagesReadAgain{}; }
  // How files are read and written, for the log; empty where there are none.
  std::string description() const;

 private:
  explicit FileStore(std::size_t boundless_bytes);

  std::unique_ptr<IoEngine> engine_, throttled_;
  std::unique_ptr<SwapFile> file_;
  SwapTier tier_;
  bool registered_ = false;
};

}  // namespace zeepo
