#include "zeepo/torch/saved_tensors.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/errors.h"
#include "zeepo/zero/session.h"

namespace zeepo {
namespace {

constexpr std::size_t kSavedBytes = 300000;

TEST(SavedTensors, ComeBackAsTheyWereAsOftenAsTheyAreAskedFor) {
  Session::Options options{.threads = 1, .device_bytes = 1 << 20};
  options.lower.host_bytes = 1 << 20;
  Session session(options);
  {
    SavedTensors saved(session.lower(), Place::host);
    std::vector<std::byte> first(kSavedBytes, std::byte{1}), second(kSavedBytes, std::byte{2});
    const std::int64_t one = saved.keep(first.data(), kSavedBytes), other = saved.keep(second.data(), kSavedBytes);
    saved.wait_until_left(one);
    first.assign(kSavedBytes, std::byte{9});
    for (int turn = 0; turn < 2; ++turn) {
      saved.start_bringing(one, first.data());
      saved.wait_until_here(one);
      EXPECT_EQ(first[kSavedBytes - 1], std::byte{1});
      first.assign(kSavedBytes, std::byte{9});
    }
    EXPECT_EQ(session.lower().host().current()[Kind::activations], static_cast<std::int64_t>(2 * kSavedBytes));
    saved.drop(one);
    saved.drop(one);
    EXPECT_TRUE(names(error_text([&] { saved.wait_until_here(one); }), "is not kept any more"));
    saved.wait_until_left(other);
  }
  session.check_empty();
}

}  // namespace
}  // namespace zeepo
