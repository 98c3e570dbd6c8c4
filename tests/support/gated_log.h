// A log that holds a run up: a FIFO that the test empties when it wants to, so that it acts between two steps of the
// run.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/running_program.h"

namespace zeepo {

class GatedLog {
 public:
  // The lines of this many steps are more than a FIFO holds: the run waits until the test reads.
  static constexpr int kSteps = 400;

  explicit GatedLog(const std::filesystem::path& path) {
    if (::mkfifo(path.c_str(), 0600) != 0) throw Error("cannot make the FIFO {}", path.string());
    reader_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  }
  ~GatedLog() { ::close(reader_); }
  GatedLog(const GatedLog&) = delete;
  GatedLog& operator=(const GatedLog&) = delete;

  // Some steps have been done.
  bool has_steps() const {
    int bytes = 0;
    return ::ioctl(reader_, FIONREAD, &bytes) == 0 && bytes > 8192;
  }
  // Reads what there is; true when the run has closed the log.
  bool read() {
    char buffer[1 << 16];
    ssize_t n = 0;
    while ((n = ::read(reader_, buffer, sizeof buffer)) > 0) text_.append(buffer, static_cast<std::size_t>(n));
    return n == 0;
  }
  bool has(const std::string& part) {
    read();
    return text_.find(part) != std::string::npos;
  }
  std::vector<nlohmann::json> events(const std::string& kind) const {
    std::vector<nlohmann::json> found;
    std::istringstream lines(text_);
    for (std::string line; std::getline(lines, line);)
      if (auto event = nlohmann::json::parse(line); event.at("event") == kind) found.push_back(std::move(event));
    return found;
  }

 private:
  int reader_ = -1;
  std::string text_;
};

}  // namespace zeepo
