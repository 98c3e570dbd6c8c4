#include "zeepo/comm/mpi/mpi_world.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "zeepo/base/error.h"
#include "zeepo/comm/mpi/mpi_check.h"

namespace zeepo {
namespace {

// Open MPI's TCP lets the receiver of a large message ask for it ("put"). Over a slow link the request waits behind all
// data that goes the same way, and the link idles: a step takes 1.5 times as long as its bytes. Sent without being
// asked for, 1.1 times. Who sets the parameter, for mpirun or in the environment, is heard; other MPIs do not read it.
void send_large_messages_unasked() {
  constexpr const char* kAllButPut = "312";  // in place, need-ack, need-csum, hetero-rdma; send is always there
  ::setenv("OMPI_MCA_btl_tcp_flags", kAllButPut, 0);
}

}  // namespace

MpiWorld::MpiWorld() {
  int initialized = 0;
  mpi_check(MPI_Initialized(&initialized));
  if (initialized) throw Error("MPI has been initialised already: a process can join its ranks once");
  send_large_messages_unasked();
  int level = 0;
  mpi_check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
  if (level < MPI_THREAD_MULTIPLE)
    throw Error("MPI gives thread level {}, and zeepo needs MPI_THREAD_MULTIPLE ({}): use an MPI built with it", level,
                static_cast<int>(MPI_THREAD_MULTIPLE));  // an enumerator in some MPIs
  // Results are read; without this a lost peer would end the process before it can say whom it waited for.
  mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
  mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &work_));  // duplicates return errors too
  mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &heart_));
  find_local_ranks();
  find_hosts();
}

void MpiWorld::find_local_ranks() {
  MPI_Comm local = MPI_COMM_NULL;
  mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local));
  int count = 0;
  mpi_check(MPI_Comm_rank(local, &local_rank_));
  mpi_check(MPI_Comm_size(local, &count));
  const LocalRank own{rank_, getpid()};
  local_ranks_.resize(static_cast<std::size_t>(count));
  mpi_check(MPI_Allgather(&own, sizeof own, MPI_BYTE, local_ranks_.data(), sizeof own, MPI_BYTE, local));
  mpi_check(MPI_Comm_free(&local));
  nodes_.resize(static_cast<std::size_t>(size_));
  const int lowest = local_ranks_[0].rank;
  mpi_check(MPI_Allgather(&lowest, 1, MPI_INT, nodes_.data(), 1, MPI_INT, MPI_COMM_WORLD));
}

void MpiWorld::find_hosts() {
  using Name = std::array<char, 256>;
  Name own{};
  if (::gethostname(own.data(), own.size() - 1) != 0) own = {"(unknown)"};
  std::vector<Name> all(static_cast<std::size_t>(size_));
  mpi_check(MPI_Allgather(own.data(), sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, MPI_COMM_WORLD));
  if (std::ranges::all_of(all, [&](const Name& name) { return name == all[0]; })) return;
  for (const Name& name : all) hosts_.emplace_back(name.data());
}

std::string MpiWorld::name_of(int rank) const {
  if (hosts_.empty()) return fmt::format("rank {}", rank);
  return fmt::format("rank {} on host {}", rank, hosts_[static_cast<std::size_t>(rank)]);
}

void MpiWorld::finalize() {
  mpi_check(MPI_Comm_free(&work_));
  mpi_check(MPI_Comm_free(&heart_));
  mpi_check(MPI_Finalize());
}

}  // namespace zeepo
