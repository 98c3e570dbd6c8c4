#include "zeepo/kernels/embedding.h"

#include "tests/kernels/cuda/cuda_checks.h"
#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr std::int64_t kVocabulary = 101;

// Some ids often, most a few times, some never.
std::vector<std::int32_t> some_ids(std::int64_t count) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    const float u = uniform({5}, static_cast<std::uint64_t>(i));
    ids.push_back(u < 0.3f ? 7 : static_cast<std::int32_t>(u * 95));
  }
  return ids;
}

TEST(CudaEmbedding, LooksUpAndSumsWithTheBitsOfTheCpu) {
  for (const SummedTypes types : kSummedTypes)
    for (const std::int64_t n : {1, 8, 13, 264, 1032})
      for (const std::int64_t count : {1, 6, 900})
        for (const Write write : {Write::overwrite, Write::add}) {
          auto ids = Twin::integers(some_ids(count), {count});
          auto table = Twin::random(types.values, {kVocabulary, n}, 1), dy = Twin::random(types.values, {count, n}, 2);
          auto dtable = Twin::random(types.sums, {kVocabulary, n}, 3);
          Twin y(types.values, {count, n});
          on_both([&](auto& s) {
            embed(s, ids.on(s), table.on(s), y.on(s));
            embed_backward(s, ids.on(s), dy.on(s), dtable.on(s), write);
          });
          y.expect_same_bits("embed " + name_of_case(types.values, count, n));
          dtable.expect_same_bits("embed_backward " + name_of_case(types.values, count, n, write == Write::add));
        }
}

TEST(CudaEmbedding, RefusesMoreIdsThanItCounts) {
  const auto table = Twin::random(DType::f32, {kVocabulary, 8}, 1);
  const std::int64_t many = std::int64_t{1} << 31;
  const ConstView ids{table.view().data, DType::i32, {many}};
  const View rows{table.view().data, DType::f32, {many, 8}};
  EXPECT_THROW(embed(gpu(), ids, table.view(), rows), Error);
  EXPECT_THROW(embed_backward(gpu(), ids, rows, table.view(), Write::overwrite), Error);
  table.expect_same_bits("a table that was refused");
}

}  // namespace
}  // namespace zeepo
