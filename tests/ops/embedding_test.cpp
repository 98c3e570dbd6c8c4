#include "zeepo/ops/embedding.h"

#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"
#include "zeepo/ops/add.h"

namespace zeepo {
namespace {

TEST(Embedding, GradientsAgreeWithRepeatedAndUnusedRows) {
  TestDevice device;
  const Tensor ids = int_tensor({4, 0, 4, 4, 2, 0}, {2, 3});
  expect_gradients({random_input("table", {6, 5}, 1)}, [&](auto in) { return embedding(ids, in[0]); });
}

TEST(Embedding, GradientsOfATableUsedTwiceAddUp) {
  TestDevice device;
  const Tensor a = int_tensor({1, 3, 1}, {3}), b = int_tensor({3, 3, 0}, {3});
  expect_gradients({random_input("table", {4, 5}, 1)},
                   [&](auto in) { return add(embedding(a, in[0]), embedding(b, in[0])); });
}

TEST(Embedding, ErrorsNameTheShapes) {
  TestDevice device;
  EXPECT_TRUE(names(error_text([] { embedding(Tensor({2, 3}), Tensor({4, 5})); }), "embedding", "(2, 3)", "(4, 5)"));
  EXPECT_TRUE(names(error_text([] { embedding(int_tensor({1}, {1}), Tensor(Shape{4})); }), "embedding", "(1)", "(4)"));
}

}  // namespace
}  // namespace zeepo
