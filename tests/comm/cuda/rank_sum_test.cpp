// The sum over ranks on a GPU is the host's, to the bit.
#include "zeepo/comm/cuda/rank_sum.h"

#include <gtest/gtest.h>

#include "tests/comm/collective_checks.h"
#include "zeepo/device/copy.h"
#include "zeepo/device/cuda/cuda_stream.h"

namespace zeepo {
namespace {

// Part r of all ranks' parts is what rank r brings; that of `own` lies in memory of its own.
void check_sum(CudaStream& stream, int ranks, int own, std::int64_t n, DType dtype, DType result) {
  Values parts(dtype, 0), own_parts(dtype, n * ranks), sum(result, n);
  for (int rank = 0; rank < ranks; ++rank) {
    const Values values(dtype, n, rank);
    for (const std::byte byte : values.bytes) parts.bytes.push_back(rank == own ? std::byte{0xff} : byte);
    if (rank == own) std::memcpy(own_parts.part(rank, ranks).data, values.bytes.data(), values.bytes.size());
  }
  const auto up = [&](Values& from, const MemoryRange& to) {
    copy_to_device(stream, from.bytes.data(), to.data(), from.bytes.size());
    return View{to.data(), from.dtype, {from.elements()}};
  };
  const MemoryRange all = device_memory(stream, "device", parts.bytes.size()),
                    mine = device_memory(stream, "device", parts.bytes.size()),
                    out = device_memory(stream, "device", sum.bytes.size());
  sum_in_rank_order(stream.handle(), {up(parts, all), up(own_parts, mine), own, ranks}, up(sum, out));
  copy_to_host(stream, out.data(), sum.bytes.data(), sum.bytes.size());
  stream.synchronize();
  expect_same(sum.view(), reference_sum(dtype, result, n, ranks, 0, n),
              fmt::format("{} ranks, own {}, {} of {} into {}", ranks, own, n, name_of(dtype), name_of(result)));
}

TEST(CudaRankSum, IsTheReferenceToTheBit) {
  CudaStream stream;
  for (const int ranks : {1, 2, 5})
    for (const std::int64_t n : {1, 1000, 300'001})
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        for (const DType result : {DType::f32, DType::bf16, DType::f16})
          check_sum(stream, ranks, ranks / 2, n, dtype, result);
}

TEST(CudaRankSum, MayBeWhereAPartIs) {
  CudaStream stream;
  Values parts(DType::bf16, 0);
  for (int rank = 0; rank < 3; ++rank)
    for (const std::byte byte : Values(DType::bf16, 100, rank).bytes) parts.bytes.push_back(byte);
  const MemoryRange memory = device_memory(stream, "device", parts.bytes.size());
  copy_to_device(stream, parts.bytes.data(), memory.data(), parts.bytes.size());
  const ConstView all{memory.data(), DType::bf16, {300}};
  const View sum{memory.data() + 200, DType::bf16, {100}};
  sum_in_rank_order(stream.handle(), {all, all, 1, 3}, sum);
  Values got(DType::bf16, 100);
  copy_to_host(stream, sum.data, got.bytes.data(), got.bytes.size());
  stream.synchronize();
  expect_same(got.view(), reference_sum(DType::bf16, DType::bf16, 100, 3, 0, 100), "in place");
}

}  // namespace
}  // namespace zeepo
