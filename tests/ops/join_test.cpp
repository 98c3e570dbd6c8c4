#include "zeepo/ops/join.h"

#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"

namespace zeepo {
namespace {

TEST(Join, GradientsAgreeWithDifferences) {
  TestDevice device;
  expect_gradients({random_input("a", {3}, 1), random_input("b", {2, 2}, 2)}, [](auto in) {
    return join({in[0], in[1], in[0]});
  });
}

TEST(Join, PartsFollowOneAnotherAndFrozenOnesWantNoGradient) {
  TestDevice device;
  LeafStore store;
  const auto frozen = make_leaf(Tensor::from<float>(std::vector<float>{1, 2}, {2}), store);
  const auto trained = make_leaf(Tensor::from<float>(std::vector<float>{3, 4, 5}, {3}), store);
  frozen->set_trainable(false);
  Tape tape;
  Tensor y;
  {
    const TapeScope scope(&tape);
    y = join({as_tensor(frozen), as_tensor(trained)});
    EXPECT_EQ(join({as_tensor(frozen)}).gradient(), nullptr);
  }
  EXPECT_EQ(y.to_floats(), (std::vector<float>{1, 2, 3, 4, 5}));
  tape.backward(y, Tensor::from<float>(std::vector<float>{10, 20, 30, 40, 50}, {5}));
  EXPECT_FALSE(store.has(*frozen));
  EXPECT_EQ(store.of(*trained), (std::vector<float>{30, 40, 50}));
  EXPECT_TRUE(names(error_text([] { join({}); }), "join", "nothing"));
}

}  // namespace
}  // namespace zeepo
