// The ranks that train together, and their collectives.
//
// Every rank calls the same collectives in the same order; a Label says which, and ranks that disagree get an Error on
// each of them, never a hang. Sums are taken in fp32 in rank order and rounded once, whatever the backend, so that they
// are the same to the bit everywhere. A call returns when it is done on this rank; it may come from any one thread at a
// time. When a rank fails or goes silent, every call on the others throws an Error that names it and the label; after
// an Error nothing more can be sent, and the job ends with abort_job.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/base/dtype.h"
#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"

namespace zeepo {

// Bytes that a rank has sent, by collective; and what of all of them has left its node.
struct CommBytes {
  std::int64_t all_gather = 0, reduce_scatter = 0, all_reduce = 0, between_nodes = 0;
  friend CommBytes operator+(const CommBytes& a, const CommBytes& b) {
    return {a.all_gather + b.all_gather, a.reduce_scatter + b.reduce_scatter, a.all_reduce + b.all_reduce,
            a.between_nodes + b.between_nodes};
  }
  friend CommBytes operator-(const CommBytes& a, const CommBytes& b) {
    return {a.all_gather - b.all_gather, a.reduce_scatter - b.reduce_scatter, a.all_reduce - b.all_reduce,
            a.between_nodes - b.between_nodes};
  }
};
// What each rank sends in an all-gather or a reduce-scatter of `bytes`, all ranks' together: (N−1)/N of them. An
// all-reduce is one of each.
inline std::int64_t sent_of(std::size_t bytes, int ranks) {
  return static_cast<std::int64_t>(bytes) * (ranks - 1) / ranks;
}

// What a collective is about, for errors and for the check that all ranks mean the same.
struct Label {
  std::string what;     // "gradients of model.layers.3"
  std::int64_t id = 0;  // the unit's number, or another that must be the same on all ranks
};

// How the ranks' parts become a shard of their sum, in fp32 and in rank order.
struct SumInto {
  bool onto = false;              // what the shard holds, which is fp32, comes before the first rank's part
  DType rounded_to = DType::f32;  // the finished sum is rounded to this dtype, whatever the shard's
  friend bool operator==(const SumInto&, const SumInto&) = default;
};

// Bytes for one rank, and from one.
struct Outgoing {
  int to = 0;
  std::span<const std::byte> bytes;
};
struct Incoming {
  int from = 0;
  std::span<std::byte> bytes;
};

struct Call;               // call.h
class DeviceCommunicator;  // device_communicator.h

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual std::string_view name() const = 0;  // "mpi"
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // full = the ranks' shards one after another, all of one size. `shard` may be this rank's part of `full` itself.
  virtual void all_gather(CpuStream& stream, ConstView shard, View full, const Label& label) = 0;
  // shard = this rank's part of the sum of all ranks' `full`; shard may be of another float dtype, or this rank's part
  // of `full` itself where nothing is summed onto it. `scratch` has the size of `full`; what it holds is lost.
  virtual void reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard, const Label& label,
                              const SumInto& how = {}) = 0;
  // x = the sum of all ranks' x; fp32, and small.
  virtual void all_reduce(CpuStream& stream, View x, const Label& label) = 0;
  // x of `root` on every rank.
  virtual void broadcast(CpuStream& stream, View x, int root, const Label& label) = 0;

  // Each of `out` to its rank, while each of `in` comes from its own; between two ranks in their order, and of the same
  // sizes on both sides. Every rank makes the same `call`, even where it has nothing to send.
  virtual void exchange(const Call& call, std::span<const Outgoing> out, std::span<const Incoming> in);

  // Returns when all ranks have made this call, of which nothing is sent: for who sends it by other means.
  virtual void agree(const Call& /*call*/) {}
  // Its collectives on a GPU's memory; null where it has none, and they pass through host memory.
  virtual DeviceCommunicator* on_device() { return nullptr; }
  // Whether collectives may be left out, since there are no other ranks.
  virtual bool alone() const { return size() == 1; }
  // Why nothing more can be sent, once that is so; any thread may ask.
  virtual std::optional<std::string> failure() const { return std::nullopt; }

  // Ranks on this machine, and this rank's number among them.
  virtual int local_rank() const { return rank(); }
  virtual int local_size() const { return size(); }
  // A number for each rank, the same where two ranks are on one machine.
  virtual std::vector<int> nodes() const { return std::vector<int>(static_cast<std::size_t>(size())); }
  // A call that has waited this long for ranks that are alive throws an Error that names them; 0, the default: never.
  virtual void set_progress_timeout(double /*seconds*/) {}
  // The clean end of the job: returns when all ranks have called it; no other call may follow. Without it a rank counts
  // as failed when it ends.
  virtual void finish() {}
  // Ends the job on all ranks because this one has failed: tells the others why, prints one line that names this rank
  // and what it waited for, and exits with 1. Runs no destructors; any thread may call it.
  [[noreturn]] virtual void abort_job(const std::string& message);
};

}  // namespace zeepo
