#include "zeepo/zero/stored_form.h"

#include <gtest/gtest.h>

namespace zeepo {
namespace {

Unit unit_of(const std::vector<Shape>& shapes) {
  Unit unit;
  for (const Shape& shape : shapes) {
    unit.parameters.push_back({.offset = unit.elements, .shape = shape, .trainable = true, .weights = {}});
    unit.elements += coded_rows(shape.elements()) * kCodedRow;
  }
  return unit;
}

TEST(StoredForm, IsRowsOfAllAndThenWhatStaysExact) {
  const Unit unit = unit_of({{192}, {64, 192}, {192}, {192, 64}});
  const StoredForm form(CodedType::int4, DType::bf16, unit, unit.elements, 1);
  EXPECT_TRUE(form.coded());
  EXPECT_EQ(form.code_bytes(unit.elements), static_cast<std::size_t>(unit.elements / 128 * 72));
  const auto exact = form.exact_parts(0);
  ASSERT_EQ(exact.size(), 2u);
  EXPECT_EQ(exact[0].extent, unit.parameters[0].extent());
  EXPECT_EQ(exact[1].extent, unit.parameters[2].extent());
  EXPECT_GE(exact[0].offset, form.code_bytes(unit.elements));
  EXPECT_GE(exact[1].offset, exact[0].offset + 192 * 2);
  EXPECT_GE(form.bytes(), exact[1].offset + 192 * 2);
}

TEST(StoredForm, OfAllRanksTogetherHasEveryExactElementOnce) {
  const Unit unit = unit_of({{1000}, {64, 192}, {300}, {10, 64}});
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const std::int64_t shard = shard_elements(unit.elements, ranks, Unit::kAlignment);
    const StoredForm form(CodedType::int8, DType::f32, unit, shard, ranks);
    std::int64_t exact = 0;
    for (int rank = 0; rank < ranks; ++rank)
      for (const auto& part : form.exact_parts(rank)) {
        EXPECT_GE(part.extent.begin, rank * shard);
        EXPECT_LE(part.extent.end, (rank + 1) * shard);
        EXPECT_LE(part.offset + static_cast<std::size_t>(part.extent.elements()) * 4, form.bytes());
        exact += part.extent.elements();
      }
    EXPECT_EQ(exact, 1300) << ranks;
  }
}

TEST(StoredForm, IsNotWorthItForVectors) {
  EXPECT_FALSE(StoredForm::worth_it(unit_of({{192}})));
  EXPECT_FALSE(StoredForm::worth_it(unit_of({{192}, {4, 64}})));
  EXPECT_TRUE(StoredForm::worth_it(unit_of({{192}, {192, 192}})));
}

}  // namespace
}  // namespace zeepo
