// `--trace FILE`: what every rank did in the run's last steps, one Chrome trace for all of them.
//
// The ranks share the spans that a trace may hold, so that the file stays small enough for a viewer however many they
// are. Rank 0 tries the place at the start and makes the file at the end; a run that fails leaves none.
#pragma once

#include <filesystem>

#include "zeepo/base/timeline.h"
#include "zeepo/comm/communicator.h"

namespace zeepo {

class TraceFile {
 public:
  // A collective: times are counted from when the ranks meet here. Throws Error when the file cannot be made.
  TraceFile(const std::filesystem::path& path, Communicator& communicator);

  Timeline& timeline() { return timeline_; }
  // A collective. On rank 0 says what is in the file.
  void write();

 private:
  static std::size_t spans_of(Communicator& communicator);

  Communicator& communicator_;
  const std::filesystem::path path_;
  Timeline timeline_;
};

}  // namespace zeepo
