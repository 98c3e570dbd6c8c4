#include "zeepo/comm/self/self_communicator.h"

#include "tests/comm/collective_checks.h"
#include "tests/support/errors.h"

namespace zeepo {
namespace {

TEST(SelfCommunicator, GivesWhatOneRankGives) {
  SelfCommunicator comm;
  check_collectives(comm);
  comm.finish();
}

TEST(SelfCommunicator, RefusesViewsThatDoNotFit) {
  SelfCommunicator comm;
  ThreadPool pool(1);
  CpuStream stream(pool);
  Values four(DType::f32, 4), five(DType::f32, 5), half(DType::bf16, 4), whole(DType::i32, 4);
  EXPECT_TRUE(names(error_text([&] {
                      comm.all_gather(stream, four.view(), five.view(), {"w", 0});
                    }),
                    "all-gather of w", "fp32 (4)", "fp32 (5)"));
  EXPECT_TRUE(names(error_text([&] { comm.all_gather(stream, four.view(), half.view(), {"w", 0}); }), "one dtype"));
  EXPECT_TRUE(names(error_text([&] {
                      comm.reduce_scatter(stream, four.view(), half.view(), four.view(), {"g", 0});
                    }),
                    "g", "scratch of 8 bytes", "16"));
  EXPECT_TRUE(names(error_text([&] {
                      comm.reduce_scatter(stream, whole.view(), whole.view(), whole.view(), {"g", 0});
                    }),
                    "int32"));
  EXPECT_TRUE(names(error_text([&] { comm.all_reduce(stream, half.view(), {"n", 0}); }), "bf16", "must be fp32"));
  EXPECT_TRUE(names(error_text([&] { comm.broadcast(stream, four.view(), 1, {"s", 0}); }), "root 1"));
}

}  // namespace
}  // namespace zeepo
