#include "zeepo/zero/session.h"

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "zeepo/base/machine.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {
namespace {

TEST(Session, WhatIsStillHeldAtTheEndIsAnErrorThatNamesIt) {
  const TestDirectory directory;
  Session session(
      {.threads = 1,
       .device_bytes = 4 << 20,
       .lower = {
           .host_bytes = 8 << 20, .nvme_paths = {directory.path()}, .nvme_bytes = 4 << 20, .staging_bytes = 1 << 20}});
  session.check_empty();  // the buffers between device and files are its own
  {
    const Tensor held({1 << 10}, DType::f32, Kind::grads);
    const std::string text = error_text([&] { session.check_empty(); });
    EXPECT_TRUE(names(text, "rank 0", "device memory: grads 4.00 KiB"));
    EXPECT_EQ(text.find("host"), std::string::npos);
  }
  session.check_empty();
  {
    const Block host = session.lower().at(Place::host).allocate(1 << 20, Kind::optimizer);
    const Block nvme = session.lower().at(Place::nvme).allocate(2 << 20, Kind::activations);
    EXPECT_TRUE(names(error_text([&] { session.check_empty(); }), "host memory: optimizer 1.00 MiB",
                      "nvme memory: activations 2.00 MiB"));
  }
  session.check_empty();
}

TEST(Session, WithoutFilesOnlyMemoryIsLookedAt) {
  Session session({.threads = 1, .device_bytes = 1 << 20, .lower = {.host_bytes = 1 << 20, .nvme_paths = {}}});
  session.check_empty();
  const Block host = session.lower().at(Place::host).allocate(4096, Kind::working);
  EXPECT_TRUE(names(error_text([&] { session.check_empty(); }), "host memory: working 4.00 KiB"));
}

TEST(SharedMemory, IsNeverMoreThanThereIs) {
  EXPECT_EQ(share_memory(800, {}), (SharedBytes{700, 100}));
  EXPECT_EQ(share_memory(800, {}, {.device = 300, .host = 420}), (SharedBytes{370, 430}));
  EXPECT_EQ(share_memory(800, {}, {.device = 500, .host = 400}), (SharedBytes{500, 300}));  // the host lacks 100
  EXPECT_EQ(share_memory(800, {}, {.device = 900, .host = 1}), (SharedBytes{800, 0}));
  EXPECT_EQ(share_memory(800, {.device = 600}), (SharedBytes{600, 200}));
  EXPECT_EQ(share_memory(800, {.host = 600}), (SharedBytes{200, 600}));
  EXPECT_EQ(share_memory(800, {.device = 900}), (SharedBytes{900, 0}));
  EXPECT_EQ(share_memory(800, {.device = 700, .host = 600}), (SharedBytes{700, 600}));  // as it was asked for
}

// Device and host of all ranks on a machine are one memory.
TEST(Session, RanksOfAMachineShareItsMemory) {
  for (const int ranks : {1, 3}) {
    const auto part = static_cast<std::size_t>(usable_memory_bytes() / ranks);
    for (const std::int64_t device_bytes : {0, 1 << 20})
      for (const std::int64_t host_bytes : {0, 1 << 20}) {
        Session session({.threads = 1,
                         .device_bytes = device_bytes,
                         .ranks_on_node = ranks,
                         .lower = {.host_bytes = host_bytes, .nvme_paths = {}}});
        const std::size_t device = session.budget_bytes(Place::device), host = session.budget_bytes(Place::host);
        EXPECT_LE(device + host, part) << ranks << " ranks, " << device_bytes << ", " << host_bytes;
        EXPECT_GE(device, std::size_t{1} << 20);
        EXPECT_GE(host, std::size_t{1} << 20);
      }
  }
}

}  // namespace
}  // namespace zeepo
