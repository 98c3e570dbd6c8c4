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
