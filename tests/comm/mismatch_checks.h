// Ranks that call different things must all get an Error that names both, whatever the backend.
#pragma once

#include "tests/comm/collective_checks.h"
#include "tests/support/errors.h"
#include "zeepo/comm/call.h"

namespace zeepo {

// The last rank differs in one way after another; each time every rank must throw, and can then go on.
inline void check_mismatches(Communicator& comm) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const int ranks = comm.size(), last = ranks - 1;
  const bool odd = comm.rank() == last;
  const std::string both[] = {fmt::format("rank {} called", last), "rank 0 called"};
  const auto gather = [&](DType dtype, std::int64_t n, const Label& label) {
    Values shard(dtype, n, 0), full(dtype, n * ranks);
    comm.all_gather(stream, shard.view(), full.view(), label);
  };

  std::string text = error_text([&] { gather(DType::f32, 4, odd ? Label{"layer 9", 9} : Label{"layer 8", 8}); });
  EXPECT_TRUE(names(text, both[0], both[1], "\"layer 9\" (id 9)", "\"layer 8\" (id 8)", "all-gather")) << text;

  text = error_text([&] { gather(DType::f32, odd ? 5 : 4, {"layer 8", 8}); });
  EXPECT_TRUE(
      names(text, both[0], both[1], fmt::format("of {} bytes", 20 * ranks), fmt::format("of {} bytes", 16 * ranks)));

  text = error_text([&] { gather(odd ? DType::bf16 : DType::f16, 4, {"layer 8", 8}); });
  EXPECT_TRUE(names(text, both[0], both[1], "bf16", "fp16"));

  text = error_text([&] {
    if (!odd) return gather(DType::f32, 4, {"weights", 1});
    Values x(DType::f32, 4, 0);
    comm.all_reduce(stream, x.view(), {"norm", 1});
  });
  EXPECT_TRUE(names(text, both[0], both[1], "all-reduce", "\"norm\"", "all-gather", "\"weights\""));

  text = error_text([&] {
    Values x(DType::f32, 4, 0);
    comm.broadcast(stream, x.view(), odd ? last : 0, {"seed", 1});
  });
  EXPECT_TRUE(names(text, both[0], both[1], fmt::format("from rank {}", last), "from rank 0"));

  text = error_text([&] {
    Values full(DType::bf16, 4 * ranks, 0), scratch(DType::bf16, 4 * ranks), shard(odd ? DType::f32 : DType::bf16, 4);
    comm.reduce_scatter(stream, full.view(), scratch.view(), shard.view(), {"gradients", 1});
  });
  EXPECT_TRUE(names(text, both[0], both[1], "bf16 into fp32"));

  // What is large is still on its way when the mismatch is found: nobody may receive it, nor the next call find it.
  constexpr std::int64_t kLarge = std::int64_t{1} << 20;
  text = error_text([&] { gather(DType::f32, odd ? kLarge + 4 : kLarge, {"layer 8", 8}); });
  EXPECT_TRUE(names(text, both[0], both[1], "all-gather")) << text;
  check_all_gather(comm, stream, DType::f32, kLarge, true);

  std::vector<Bytes> sent, received;
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int other = 0; other < ranks; ++other) {
    sent.emplace_back(kLarge, std::byte{1});
    received.emplace_back(kLarge, std::byte{2});
  }
  for (int other = 0; other < ranks; ++other) {
    if (other == comm.rank()) continue;
    out.push_back({other, sent[static_cast<std::size_t>(other)]});
    in.push_back({other, received[static_cast<std::size_t>(other)]});
  }
  const auto exchange = [&](ExchangePhase phase) {
    comm.exchange(exchange_call(WireType::int8, phase, kLarge, {"layer 8", 8}), out, in);
  };
  text = error_text([&] { exchange(odd ? ExchangePhase::reduce_between : ExchangePhase::gather_within); });
  EXPECT_TRUE(names(text, both[0], both[1], "reduce-scatter between nodes", "all-gather within nodes")) << text;
  for (const Bytes& bytes : received) EXPECT_EQ(bytes, Bytes(kLarge, std::byte{2}));  // as before the call
  check_exchange(comm);

  text = error_text([&] {
    if (!odd) return exchange(ExchangePhase::gather_within);
    Values x(DType::f32, 4, 0);
    comm.broadcast(stream, x.view(), 0, {"seed", 1});
  });
  EXPECT_TRUE(names(text, both[0], both[1], "broadcast", "\"seed\"", "\"layer 8\"")) << text;

  check_all_reduce(comm, stream, 3);

  // Agreeing alone, with nothing sent, sees the same.
  const auto agree = [&](std::int64_t n) {
    Values shard(DType::f32, n, 0), full(DType::f32, n * ranks);
    comm.agree(all_gather_call(ranks, shard.view(), full.view(), {"layer 8", 8}));
  };
  agree(4);
  text = error_text([&] { agree(odd ? 5 : 4); });
  EXPECT_TRUE(names(text, both[0], both[1], "\"layer 8\" (id 8)", "all-gather")) << text;
}

}  // namespace zeepo
