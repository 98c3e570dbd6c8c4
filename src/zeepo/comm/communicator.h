// The ranks that train together, and their collectives.
//
// Every rank calls the same collectives in the same order. Sums are taken in fp32 in rank order, whatever the backend,
// so that they are the same to the bit everywhere. Views belong to the stream until it has passed the call.
#pragma once

#include <cstdint>

#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"

namespace zeepo {

// Bytes this rank has sent, by collective: an all-gather or a reduce-scatter of P bytes over N ranks counts
// (N−1)/N · P, an all-reduce twice that.
struct CommBytes {
  std::int64_t all_gather = 0, reduce_scatter = 0, all_reduce = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // full = the ranks' shards one after another. `shard` may be this rank's part of `full` itself.
  virtual void all_gather(Stream& stream, ConstView shard, View full) = 0;
  // shard = this rank's part of the sum of all ranks' `full`. `shard` may be that part of `full` itself.
  virtual void reduce_scatter(Stream& stream, ConstView full, View shard) = 0;
  // x = the sum of all ranks' x; fp32.
  virtual void all_reduce(Stream& stream, View x) = 0;

  const CommBytes& sent() const { return sent_; }

 protected:
  CommBytes sent_;
};

}  // namespace zeepo
