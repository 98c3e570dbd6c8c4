// The ranks of an MPI job; at most one a process.
//
// A call tells all ranks a small header and sends its data right behind it, straight between every two ranks: over a
// slow link it takes one way, not one there and back before it begins. Data are received when the headers of all ranks
// have come and are the same. Where they are not, nothing has been written into the call's memory, and what was sent
// is taken and thrown away, so that nobody still reads it. The later exchanges of a collective go on without a header.
// Waiting polls with short sleeps, so that ranks which share cores leave them to each other.
#pragma once

#include <array>
#include <chrono>
#include <span>
#include <vector>

#include "zeepo/comm/call.h"
#include "zeepo/comm/communicator.h"
#include "zeepo/comm/mpi/heart.h"
#include "zeepo/comm/mpi/mpi_world.h"
#include "zeepo/comm/mpi/position.h"
#include "zeepo/comm/mpi/termination.h"

namespace zeepo {

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator();

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int local_rank() const override { return world_.local_rank(); }
  int local_size() const override { return static_cast<int>(world_.local_ranks().size()); }
  std::vector<int> nodes() const override { return world_.nodes(); }
  void all_gather(CpuStream& stream, ConstView shard, View full, const Label& label) override;
  void reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard, const Label& label,
                      const SumInto& how = {}) override;
  void all_reduce(CpuStream& stream, View x, const Label& label) override;
  void broadcast(CpuStream& stream, View x, int root, const Label& label) override;
  void exchange(const Call& call, std::span<const Outgoing> out, std::span<const Incoming> in) override;
  void agree(const Call& call) override;
  std::optional<std::string> failure() const override;
  void set_progress_timeout(double seconds) override { timeout_seconds_ = seconds; }
  void finish() override;  // from the thread that made it
  [[noreturn]] void abort_job(const std::string& message) override;

 private:
  using Clock = std::chrono::steady_clock;
  // Sleeps between looks while ranks may be far away, and while data are known to come.
  enum class Expect { ranks, data };
  using Text = std::array<char, 256>;

  // Begins a call: its header is on its way, and data may be sent, but not yet received.
  void enter(const Call& call);
  // Returns when all ranks have entered the call; throws Error on all of them when one has entered another.
  void meet(const Call& call);
  // Both for a call that the ranks have agreed on with the one before.
  void go_on(const Call& call);
  void throw_mismatch_of_all(const Call& call, int different);
  // What `from` has sent for its call, up to its text.
  void take_back(int from, Text& text);
  void send(ConstView x, int to);
  void receive(View x, int from);
  void gather(const Call& call, View full);  // every rank's part of `full` is in place on that rank
  void wait();                               // for all of requests_
  // Until f() is true. Throws when the job has failed, or when it takes too long.
  template <class F>
  void wait_until(Expect expect, F&& f);
  void check(int code);
  [[noreturn]] void throw_timeout();
  // Throws; buffers in flight may go with their owner, so that MPI must not move any more on this rank.
  [[noreturn]] void give_up(const std::string& message);

  MpiWorld world_;
  Position position_;
  Termination termination_;
  Heart heart_;
  double timeout_seconds_ = 0;
  Clock::time_point entered_at_;
  CallHeader header_;  // a member, as MPI may still read it after a call has thrown
  std::vector<CallHeader> headers_;
  MPI_Request meeting_ = MPI_REQUEST_NULL;  // of the headers
  std::vector<MPI_Request> requests_;       // of the data
  std::vector<float> gathered_;             // all_reduce's parts
};

}  // namespace zeepo
