#include "zeepo/device/stream.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "zeepo/device/copy.h"
#include "zeepo/device/view.h"

namespace zeepo {
namespace {

TEST(Stream, DispatchPicksTheBackendByType) {
  ThreadPool pool(1);
  CpuStream cpu(pool);
  Stream& stream = cpu;
  int runs = 0;
  dispatch(stream, [&]<class S>(S& s) {
    ++runs;
    if constexpr (std::is_same_v<S, CpuStream>)
      EXPECT_EQ(&s.pool(), &pool);
    else
      FAIL() << "another backend's";
  });
  EXPECT_EQ(runs, 1);
  EXPECT_FALSE(stream.dry());
}

TEST(Stream, ADryStreamRunsNothing) {
  DryStream dry;
  Stream& stream = dry;
  EXPECT_TRUE(stream.dry());
  dispatch(stream, [](auto&) { FAIL() << "a dry stream ran something"; });
  stream.synchronize();
}

TEST(Copy, BringsBytesThereAndBack) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const std::vector<int> from{1, 2, 3};
  std::vector<int> device(3), back(3);
  copy_to_device(stream, from.data(), device.data(), sizeof(int) * 3);
  copy_to_host(stream, device.data(), back.data(), sizeof(int) * 3);
  stream.synchronize();
  EXPECT_EQ(back, from);
}

TEST(View, KnowsItsSize) {
  std::vector<float> values(6);
  const View view{values.data(), DType::f32, {2, 3}};
  EXPECT_EQ(view.elements(), 6);
  EXPECT_EQ(view.bytes(), 24u);
  EXPECT_EQ(view.as<float>(), values.data());
  const ConstView seen = view;
  EXPECT_EQ(seen.data, view.data);
  EXPECT_TRUE(view);
  EXPECT_FALSE(View{});
}

}  // namespace
}  // namespace zeepo
