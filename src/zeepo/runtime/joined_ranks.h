// The ranks of a job, brought together as mpirun, srun or a shell has started them, with what carries a GPU's memory
// between them.
#pragma once

#include <memory>
#include <string>

#include "zeepo/comm/carrier.h"
#include "zeepo/comm/communicator.h"

namespace zeepo {

class JoinedRanks {
 public:
  // Joins the ranks as they were launched. Throws Error when that cannot be.
  JoinedRanks();
  // Ranks that are joined already; borrowed.
  explicit JoinedRanks(Communicator& ranks) : ranks_(&ranks) {}

  // Chooses the GPU of this rank, and the carrier. Every rank calls it, before any takes memory on its GPU.
  GpuPlace choose_gpu(Carrier carrier, double timeout_seconds);

  // Those that the work uses.
  Communicator& communicator() { return nccl_ ? *nccl_ : *ranks_; }
  // Ends the job on all ranks, also while the others wait for NCCL.
  [[noreturn]] void abort_job(const std::string& message);
  bool owned() const { return own_ != nullptr; }

 private:
  std::unique_ptr<Communicator> own_;  // null: borrowed
  Communicator* ranks_;
  std::unique_ptr<Communicator> nccl_;  // null: not used
};

}  // namespace zeepo
