// What a rank does when it is told to end by a signal (base/stop_request.h). mpirun sends SIGTERM to all ranks as soon
// as one of them has died.
//
// The heartbeat watches: it says what the rank was doing, and ends the process, unless the work promises to stop.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "zeepo/base/stop_request.h"
#include "zeepo/comm/mpi/mpi_world.h"

namespace zeepo {

class Termination {
 public:
  explicit Termination(const std::vector<LocalRank>& local_ranks);
  Termination(const Termination&) = delete;
  Termination& operator=(const Termination&) = delete;

  bool requested() const { return StopRequest::signal() != 0; }
  // The work stops by itself, together with the other ranks.
  bool left_to_work() const { return StopRequest::watched_by(StopRequest::Watcher::work); }
  // ": rank 2 (process 4711) has died", or nothing when all ranks on this machine are there.
  std::string who_died() const;
  // The heartbeat watches no more.
  void release();
  // Ends this process as the signal would have.
  [[noreturn]] void end_process() const { StopRequest::end_process(StopRequest::signal()); }

 private:
  std::vector<LocalRank> local_ranks_;
  std::optional<StopRequest::Signals> signals_;
  std::optional<StopRequest::Watch> watch_;
};

}  // namespace zeepo
