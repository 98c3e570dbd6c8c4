#include "zeepo/comm/self/self_communicator.h"

#include <gtest/gtest.h>

#include <vector>

namespace zeepo {
namespace {

View view(std::vector<float>& values) {
  return {values.data(), DType::f32, {static_cast<std::int64_t>(values.size())}};
}

TEST(SelfCommunicator, IsAWorldOfOneThatSendsNothing) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  SelfCommunicator self;
  EXPECT_EQ(self.rank(), 0);
  EXPECT_EQ(self.size(), 1);
  std::vector<float> from{1, 2, 3}, to(3);
  self.all_gather(stream, view(from), view(to));
  EXPECT_EQ(to, from);
  to.assign(3, 0);
  self.reduce_scatter(stream, view(from), view(to));
  EXPECT_EQ(to, from);
  self.reduce_scatter(stream, view(to), view(to));  // in place
  self.all_reduce(stream, view(to));
  EXPECT_EQ(to, from);
  EXPECT_EQ(self.sent().all_gather, 0);
  EXPECT_EQ(self.sent().reduce_scatter, 0);
  EXPECT_EQ(self.sent().all_reduce, 0);
}

TEST(SelfCommunicator, TouchesNoMemoryOnADryStream) {
  DryStream dry;
  SelfCommunicator self;
  std::vector<float> from{1}, to{0};
  self.all_gather(dry, view(from), view(to));
  EXPECT_EQ(to[0], 0);
  self.all_gather(dry, ConstView{nullptr, DType::f32, {1}}, view(to));
}

}  // namespace
}  // namespace zeepo
