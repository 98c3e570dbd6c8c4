// A line on the terminal that follows bytes; nothing where stderr is not a terminal, or the work is short.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "zeepo/base/say.h"
#include "zeepo/base/size.h"

namespace zeepo::cli {

class ByteProgress {
 public:
  ByteProgress(std::string what, std::int64_t all) : what_(std::move(what)), all_(all) {}
  ~ByteProgress() {
    if (shown_) say("\n");
  }
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  void show(std::int64_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - last_ < std::chrono::milliseconds(500)) return;
    last_ = now;
    shown_ = true;
    const double rate = static_cast<double>(done) / std::chrono::duration<double>(now - start_).count();
    say_anew("{}: {} of {}, {}/s ", what_, format_size(done), format_size(all_),
             format_size(static_cast<std::int64_t>(rate)));
  }

 private:
  std::string what_;
  std::int64_t all_;
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_ = start_;
  bool shown_ = false;
};

}  // namespace zeepo::cli
