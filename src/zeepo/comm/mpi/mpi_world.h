// MPI from its start to its end: who the ranks are, and the communicators that the work and the heartbeat run on.
//
// One a process. finalize() is the clean end and must be called on every rank, by the thread that made the world; a
// world destroyed without it leaves MPI as it is, and the launcher then takes the rank for failed.
#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "zeepo/comm/mpi/abort.h"

namespace zeepo {

// A rank on this machine.
struct LocalRank {
  int rank = 0;  // in the world
  pid_t process = 0;
};

class MpiWorld {
 public:
  MpiWorld();  // throws Error when MPI cannot be used by several threads at once
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }
  const std::vector<LocalRank>& local_ranks() const { return local_ranks_; }
  // The lowest rank on each rank's machine.
  const std::vector<int>& nodes() const { return nodes_; }
  // "rank 2", and in a job of several hosts "rank 2 on host node3".
  std::string name_of(int rank) const;
  Spread spread() const { return hosts_.empty() ? Spread::one_host : Spread::several_hosts; }
  MPI_Comm work() const { return work_; }
  MPI_Comm heart() const { return heart_; }
  void finalize();

 private:
  void find_local_ranks();
  void find_hosts();

  int rank_ = 0, size_ = 1, local_rank_ = 0;
  std::vector<LocalRank> local_ranks_;
  std::vector<int> nodes_;
  std::vector<std::string> hosts_;  // of each rank; empty where all are on this one
  MPI_Comm work_ = MPI_COMM_NULL, heart_ = MPI_COMM_NULL;
};

}  // namespace zeepo
