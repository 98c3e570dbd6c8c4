// A file that others have written, read where it is, for bytes that need no copy.
//
// O_DIRECT where the file system takes it, else buffered. A file has no checksums of its own: what is promised is that
// the bytes are those of the file as it was opened, as far as its size and time of change tell, which every
// check_unchanged() compares. A file that is replaced by another of the same name stays what it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "zeepo/base/file.h"
#include "zeepo/io/engine.h"

namespace zeepo {

class StoredFile {
 public:
  // Throws Error naming the path when it cannot be read or is no regular file.
  explicit StoredFile(const std::filesystem::path& path);
  ~StoredFile();
  StoredFile(const StoredFile&) = delete;
  StoredFile& operator=(const StoredFile&) = delete;

  std::int64_t bytes() const { return stamp_.bytes; }
  const FileStamp& stamp() const { return stamp_; }  // when it was opened
  const std::string& name() const { return whole_.name; }
  const std::string& why_buffered() const { return why_buffered_; }  // empty with O_DIRECT
  // Throws Error when the file has changed since it was opened.
  void check_unchanged() const;

  // What fills `memory`, aligned blocks of kDirectAlignment, from the aligned `offset` on, as far as the file goes.
  // What is left of its last block is read through the page cache: O_DIRECT reads whole blocks alone.
  void add_reads(std::int64_t offset, std::span<std::byte> memory, std::vector<IoTransfer>& to) const;

 private:
  void try_direct(const std::filesystem::path& path);

  IoFile whole_;   // buffered
  IoFile blocks_;  // with O_DIRECT; descriptor -1: none
  std::string why_buffered_;
  FileStamp stamp_;
};

}  // namespace zeepo
