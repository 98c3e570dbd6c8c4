#include "zeepo/kernels/coded_weights.h"

#include <vector>

#include "tests/kernels/cuda/cuda_checks.h"
#include "zeepo/kernels/coded_heads.h"
#include "zeepo/kernels/embed_codes.h"

namespace zeepo {
namespace {

// Codes and scales of any bits, NaN scales among them.
TEST(CudaCodedWeights, ExpandToTheBitsOfTheCpu) {
  Threads cpu(2);
  for (const CodedType type : {CodedType::int8, CodedType::int4})
    for (const std::int64_t rows : {1, 7, 64, 1000}) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < rows * kCodedRow; ++i)
        values.push_back(normal({3}, static_cast<std::uint64_t>(i)) * (i % 5 == 0 ? 1e-3f : 1.0f));
      values[0] = std::nanf("");
      const auto bytes = static_cast<std::int64_t>(coded_bytes(type, rows * kCodedRow));
      TypedValues coded(DType::i16, {bytes / 2});
      encode_weights(cpu.stream, type, values, coded.view().as<std::byte>());
      Twin stored(std::move(coded));
      for (const DType dtype : kFloatTypes) {
        Twin expanded(dtype, {rows * kCodedRow});
        expand_weights(cpu.stream, type, stored.on(cpu.stream).as<std::byte>(), expanded.on(cpu.stream));
        expand_weights(gpu(), type, stored.on(gpu()).as<std::byte>(), expanded.on(gpu()));
        expanded.expect_same_numbers(fmt::format("{} {}", name_of(type), name_of_case(dtype, rows)));
      }
    }
}

TEST(CudaCodedWeights, RowsOfATableAreThoseOfAllItsValues) {
  constexpr std::int64_t kVocabulary = 9;
  Threads cpu(2);
  for (const CodedType type : {CodedType::int8, CodedType::int4})
    for (const std::int64_t n : {128, 1280}) {
      std::vector<float> values(static_cast<std::size_t>(kVocabulary * n));
      fill_normal({5}, 0, values);
      TypedValues coded(DType::i16, {static_cast<std::int64_t>(coded_bytes(type, kVocabulary * n)) / 2});
      encode_weights(cpu.stream, type, values, coded.view().as<std::byte>());
      Twin stored(std::move(coded)), ids = Twin::integers({3, 8, 0, 3}, {4});
      for (const DType dtype : kFloatTypes) {
        TypedValues all(dtype, {kVocabulary * n});
        expand_weights(cpu.stream, type, stored.on(cpu.stream).as<std::byte>(), all.view());
        Twin rows(dtype, {4, n});
        on_both([&](auto& s) { embed_codes(s, ids.on(s), type, stored.on(s).template as<std::byte>(), rows.on(s)); });
        rows.expect_same_bits(name_of_case(dtype, n));
        for (std::int64_t i = 0; i < n; ++i) EXPECT_EQ(rows.cpu()[n + i], all[8 * n + i]);
      }
    }
}

TEST(CudaCodedHeads, HaveTheBitsOfTheCpu) {
  constexpr std::int64_t kRows = 9, kCount = 3;
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t dim : {16, 64, 96, 128}) {
      const std::int64_t coded = coded_head_bytes(dim);
      auto values = Twin::random(dtype, {2, kRows, kCount * dim}, 7);
      Twin codes(DType::i16, {2, kRows, kCount * coded / 2});
      Twin back(dtype, {2, kRows, kCount * dim});
      on_both([&](auto& s) {
        const View bytes{codes.on(s).data, DType::u8, {2, kRows, kCount * coded}};
        encode_heads(s, heads_of(values.on(s), 0, kCount, dim), heads_of(bytes, 0, kCount, coded));
        expand_heads(s, heads_of(bytes, 0, kCount, coded), heads_of(back.on(s), 0, kCount, dim));
      });
      codes.expect_same_bits(name_of_case(dtype, dim));
      back.expect_same_bits(name_of_case(dtype, dim));
    }
}

}  // namespace
}  // namespace zeepo
