// What the tests of I/O share: aligned memory with known bytes, a directory that is removed, engines by name.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/support/errors.h"
#include "zeepo/base/error.h"
#include "zeepo/io/engine.h"

namespace zeepo {

class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, whole_blocks(bytes)))),
        span_(data_.get(), bytes) {
    std::memset(data_.get(), 0, bytes);
  }
  // Bytes that differ from place to place and from seed to seed.
  AlignedBytes& fill(std::uint64_t seed) {
    std::uint64_t x = seed * 0x9e3779b97f4a7c15U + 1;
    for (std::size_t at = 0; at + sizeof x <= span_.size(); at += sizeof x) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      std::memcpy(span_.data() + at, &x, sizeof x);
    }
    return *this;
  }
  std::span<std::byte> span() const { return span_; }
  bool operator==(const AlignedBytes& other) const {
    return span_.size() == other.span_.size() && std::memcmp(span_.data(), other.span_.data(), span_.size()) == 0;
  }

 private:
  static std::size_t whole_blocks(std::size_t bytes) {
    return (bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
  }
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::span<std::byte> span_;
};

class IoDirectory {
 public:
  explicit IoDirectory(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "zeepo-io-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw Error("cannot create {}", pattern);
    path_ = pattern;
  }
  ~IoDirectory() { std::filesystem::remove_all(path_); }
  IoDirectory(const IoDirectory&) = delete;
  IoDirectory& operator=(const IoDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Each test runs with both engines; where the kernel refuses io_uring, that half is skipped and says why.
class EachEngine : public testing::TestWithParam<IoBackend> {
 protected:
  void SetUp() override {
    if (GetParam() != IoBackend::uring) return;
    try {
      make_io_engine({.backend = IoBackend::uring});
    } catch (const Error& refused) {
      GTEST_SKIP() << refused.what();
    }
  }
  static std::unique_ptr<IoEngine> engine(IoOptions options = {}) {
    options.backend = GetParam();
    options.threads = 4;
    return make_io_engine(options);
  }
};

inline std::string engine_name(const testing::TestParamInfo<IoBackend>& info) {
  return info.param == IoBackend::uring ? "Uring" : "Threads";
}

}  // namespace zeepo
