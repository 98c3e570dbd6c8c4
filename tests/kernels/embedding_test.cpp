#include "zeepo/kernels/embedding.h"

#include "tests/kernels/kernel_checks.h"
#include "tests/support/errors.h"

namespace zeepo {
namespace {

// Ids that repeat: the small ones often, as words do.
std::vector<std::int32_t> word_ids(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    const float u = uniform({5}, static_cast<std::uint64_t>(i));
    ids.push_back(static_cast<std::int32_t>(u * u * u * static_cast<float>(vocabulary)));
  }
  return ids;
}
ConstView view_of(const std::vector<std::int32_t>& ids) {
  return {ids.data(), DType::i32, {static_cast<std::int64_t>(ids.size())}};
}

struct EmbeddingCase {
  std::int64_t vocabulary, n, count;
};
constexpr EmbeddingCase kCases[] = {{1, 1, 1}, {7, 5, 40}, {1000, 33, 64}, {3000, 64, 1000}, {40, 769, 3}};

TEST(Embed, CopiesRows) {
  Threads threads(2);
  for (const DType dtype : kFloatTypes)
    for (const auto& [vocabulary, n, count] : kCases) {
      const auto ids = word_ids(count, vocabulary);
      const auto table = TypedValues::random(dtype, {vocabulary, n}, 1);
      TypedValues y(dtype, {count, n});
      embed(threads.stream, view_of(ids), table.view(), y.view());
      for (std::int64_t i = 0; i < count * n; ++i)
        ASSERT_EQ(y[i], table[ids[static_cast<std::size_t>(i / n)] * n + i % n]);
    }
}

// The sums are fp32, in the order of the ids, whatever the table holds: so the bits are known.
TEST(EmbedBackward, SumsInOrderAndRoundsOnce) {
  Threads threads(2);
  for (const SummedTypes types : kSummedTypes)
    for (const Write write : {Write::overwrite, Write::add})
      for (const auto& [vocabulary, n, count] : kCases) {
        const auto ids = word_ids(count, vocabulary);
        const auto dy = TypedValues::random(types.values, {count, n}, 2),
                   before = TypedValues::random(types.sums, {vocabulary, n}, 3);
        auto dtable = before, expected = before;
        for (int repetition = 0; repetition < 2; ++repetition) {  // memory kept from the last call must not show
          dtable = before;
          embed_backward(threads.stream, view_of(ids), dy.view(), dtable.view(), write);
        }
        std::vector<float> sums(static_cast<std::size_t>(vocabulary * n), 0.0f);
        for (std::size_t i = 0; i < sums.size() && write == Write::add; ++i)
          sums[i] = static_cast<float>(before[static_cast<std::int64_t>(i)]);
        for (std::int64_t i = 0; i < count * n; ++i)
          sums[static_cast<std::size_t>(ids[static_cast<std::size_t>(i / n)] * n + i % n)] += static_cast<float>(dy[i]);
        for (std::size_t i = 0; i < sums.size(); ++i) expected.set(static_cast<std::int64_t>(i), sums[i]);
        ASSERT_TRUE(dtable.bytes() == expected.bytes()) << name_of(types.values) << " " << vocabulary << " " << n;
      }
}

TEST(EmbedBackward, RefusesASumThatIsNarrower) {
  Threads threads(1);
  const auto ids = word_ids(2, 3);
  TypedValues dy(DType::f32, {2, 4}), dtable(DType::bf16, {3, 4});
  EXPECT_TRUE(
      names(error_text([&] { embed_backward(threads.stream, view_of(ids), dy.view(), dtable.view(), Write::add); }),
            "fp32 elements in bf16"));
}

TEST(EmbedBackward, SameBitsForAnyThreadCount) {
  for (const Write write : {Write::overwrite, Write::add})
    expect_same_bits_for_any_thread_count([write](CpuStream& stream) {
      const auto ids = word_ids(3000, 500);
      const auto dy = TypedValues::random(DType::bf16, {3000, 96}, 2);
      auto dtable = TypedValues::random(DType::bf16, {500, 96}, 3);
      embed_backward(stream, view_of(ids), dy.view(), dtable.view(), write);
      return std::vector{dtable};
    });
}

}  // namespace
}  // namespace zeepo
