// One collective as one rank calls it: what all ranks must agree on, checked against its views before anything is sent.
//
// The makers with views throw Error when the views do not fit each other; every backend starts with them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "zeepo/comm/communicator.h"
#include "zeepo/comm/wire_type.h"

namespace zeepo {

enum class Op : std::int32_t { all_gather, reduce_scatter, all_reduce, broadcast, finish, exchange };

enum class ExchangePhase : std::int32_t { gather_between, gather_within, reduce_within, reduce_between };

// Sent between ranks as it stands.
struct CallHeader {
  Op op = Op::finish;
  std::int32_t dtype = 0, result = 0;  // of what goes in and of what comes out
  std::int32_t root = 0;
  std::int64_t bytes = 0;  // all ranks' together, once
  std::int64_t id = 0;
  std::int32_t onto = 0, rounded_to = 0;  // of a reduce-scatter: SumInto
  std::int32_t phase = 0, wire = 0;       // of an exchange: ExchangePhase and WireType
  std::int64_t step = 0;                  // of an exchange, among those of its phase

  friend bool operator==(const CallHeader&, const CallHeader&) = default;
};

struct Call {
  CallHeader header;
  std::string what;
};

Call all_gather_call(int ranks, ConstView shard, ConstView full, const Label& label);
Call reduce_scatter_call(int ranks, ConstView full, ConstView scratch, ConstView shard, const Label& label,
                         const SumInto& how = {});
Call all_reduce_call(ConstView x, const Label& label);
// The first exchange of a phase; together they gather or reduce a whole, whose parts have these bytes as messages of
// `type`.
Call exchange_call(WireType type, ExchangePhase phase, std::size_t part_bytes, const Label& label);
Call broadcast_call(int ranks, ConstView x, int root, const Label& label);

// `reduce-scatter of 4096 bytes of bf16 into fp32 for "gradients of model.layers.3" (id 3)`
std::string describe(const CallHeader& header, const std::string& what);
inline std::string describe(const Call& call) { return describe(call.header, call.what); }
// The first rank whose header is not rank 0's, or 0 when all are the same.
int first_different(std::span<const CallHeader> headers);
// What all ranks throw when they are not.
[[noreturn]] void throw_mismatch(int rank, const Call& call, const Call& first);
// Whether `next` is the exchange that follows on `before` in one collective: who has made the one makes the other, and
// messages between two ranks come in their order.
bool continues(const CallHeader& before, const CallHeader& next);

}  // namespace zeepo
