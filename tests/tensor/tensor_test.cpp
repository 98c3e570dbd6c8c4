#include "zeepo/tensor/tensor.h"

#include <thread>

#include "tests/support/errors.h"
#include "tests/support/test_device.h"

namespace zeepo {
namespace {

using Floats = std::vector<float>;

TEST(Tensor, TakesValuesAndGivesThemBack) {
  TestDevice device;
  const Floats values{1, 2, 3, 4, 5, 6};
  const Tensor t = Tensor::from<float>(values, {2, 3});
  EXPECT_EQ(t.shape(), (Shape{2, 3}));
  EXPECT_EQ(t.to_floats(), values);
  EXPECT_EQ(t.view().bytes(), 24u);
  const std::vector<bf16> narrow{from_float<bf16>(1.5f), from_float<bf16>(-2)};
  EXPECT_EQ(Tensor::from<bf16>(narrow, {2}).to_floats(), (Floats{1.5f, -2}));
  const std::vector<f16> half{from_float<f16>(0.25f)};
  EXPECT_EQ(Tensor::from<f16>(half, {1}).item(), 0.25f);
}

TEST(Tensor, IsNotMadeInALaunch) {
  TestDevice device;
  EXPECT_TRUE(names(error_text([] { launch([](auto&) { const Tensor t({2, 3}); }); }), "(2, 3)", "dry pass"));
  EXPECT_EQ(Tensor({5}).elements(), 5);  // after it again
}

TEST(Tensor, MemoryIsReturnedWithTheLastCopy) {
  TestDevice device;
  {
    Tensor a({100}, DType::f32, Kind::grads);
    EXPECT_EQ(device.memory().current()[Kind::grads], 400);
    EXPECT_TRUE(a.unique());
    const Tensor b = a;
    EXPECT_FALSE(a.unique());
    const Tensor part = a.part(10, {20});
    a = {};
    EXPECT_EQ(device.memory().current()[Kind::grads], 400);
  }
  EXPECT_EQ(device.memory().current().total, 0);
}

TEST(Tensor, PartsAndViewsShareTheMemory) {
  TestDevice device;
  const Tensor t = Tensor::from<float>(Floats{0, 1, 2, 3, 4, 5}, {2, 3});
  EXPECT_EQ(t.part(2, {3}).to_floats(), (Floats{2, 3, 4}));
  EXPECT_EQ(t.part(2, {3}).part(1, {1}).item(), 3);
  EXPECT_EQ(t.viewed_as({3, 2}).view().data, t.view().data);
  EXPECT_EQ(t.part(1, {2}).view().as<float>(), t.view().as<float>() + 1);
  EXPECT_EQ(t.part(6, {0}).elements(), 0);
}

TEST(Tensor, ErrorsNameTheShapes) {
  TestDevice device;
  const Tensor t({2, 3});
  EXPECT_TRUE(names(error_text([&] { (void)t.viewed_as({4, 2}); }), "(2, 3)", "(4, 2)"));
  EXPECT_TRUE(names(error_text([&] { (void)t.part(4, {3}); }), "[4, 7)", "(2, 3)"));
  EXPECT_TRUE(names(error_text([&] { (void)t.part(-1, {1}); }), "[-1, 0)", "(2, 3)"));
  EXPECT_TRUE(names(error_text([&] { (void)t.item(); }), "(2, 3)"));
  EXPECT_TRUE(names(error_text([&] { (void)Tensor::from<float>(Floats{1, 2}, {3}); }), "8 bytes", "(3)"));
  EXPECT_TRUE(names(error_text([&] { (void)int_tensor({1}, {1}).to_floats(); }), "int32"));
}

TEST(Device, IsThatOfTheInnermostScopeOfTheThread) {
  EXPECT_TRUE(names(error_text([] { (void)Tensor(Shape{1}); }), "no device"));
  TestDevice outer;
  {
    TestDevice inner;
    const Tensor t(Shape{1});
    EXPECT_EQ(inner.memory().current().total, 4);
    EXPECT_EQ(outer.memory().current().total, 0);
  }
  EXPECT_EQ(&Device::current().memory, &outer.memory());
  std::thread([] { EXPECT_TRUE(names(error_text([] { (void)Device::current(); }), "no device")); }).join();
}

TEST(Device, ADryOneGivesShapesAndZeros) {
  DryStream stream;
  ArenaTier memory("device", std::size_t{1} << 40, ArenaTier::Backing::none);
  const DeviceScope scope(stream, memory);
  const Tensor t = Tensor::from<float>(Floats{1, 2}, {2});
  EXPECT_EQ(t.view().data, nullptr);
  EXPECT_EQ(t.to_floats(), (Floats{0, 0}));
  const Tensor huge({1 << 20, 1 << 10});
  EXPECT_EQ(memory.current().total, (std::int64_t{1} << 32) + 8);
  launch([](auto&) { FAIL() << "a dry device computed"; });
}

}  // namespace
}  // namespace zeepo
