// What a rank says when the launcher ends it: mpirun sends SIGTERM to all ranks as soon as one of them has died.
//
// Taken only where nobody else handles the signal. The heartbeat looks at `requested()` and prints; the handler itself
// only sets a flag.
#pragma once

#include <string>
#include <vector>

#include "zeepo/comm/mpi/mpi_world.h"

namespace zeepo {

class Termination {
 public:
  explicit Termination(const std::vector<LocalRank>& local_ranks);
  ~Termination() { release(); }
  Termination(const Termination&) = delete;
  Termination& operator=(const Termination&) = delete;

  bool requested() const;
  // ": rank 2 (process 4711) has died", or nothing when all ranks on this machine are there.
  std::string who_died() const;
  // The signal ends the process at once again.
  void release() const;
  // Ends this process as the signal would have.
  [[noreturn]] void end_process() const;

 private:
  std::vector<LocalRank> local_ranks_;
  bool installed_ = false;
};

}  // namespace zeepo
