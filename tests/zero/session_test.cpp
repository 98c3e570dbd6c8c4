#include "zeepo/zero/session.h"

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
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

}  // namespace
}  // namespace zeepo
