// What the forward pass saves leaves the device and comes back the same.
#include "zeepo/binding/activation_store.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/io_faults.h"
#include "tests/support/test_device.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

constexpr std::int64_t kRows = 64, kWidth = 100;  // 25,600 bytes in fp32: more than kLeastBytes, no whole page
constexpr std::int64_t kValueBytes = kRows * kWidth * 4;

class Activations : public testing::Test {
 protected:
  LowerTiers tiers(IoFaults* faults = nullptr) {
    return LowerTiers({.host_bytes = 64 << 20,
                       .nvme_paths = {directory_.path()},
                       .nvme_bytes = 16 << 20,
                       .staging_bytes = 1 << 20,
                       .io = {.backend = IoBackend::threads, .threads = 2, .faults = faults}},
                      device_.stream(), device_.stream());
  }
  static Tensor value(std::uint64_t seed) { return random_tensor({kRows, kWidth}, seed); }
  std::int64_t on_device() { return device_.memory().current().total; }

  TestDirectory directory_;
  TestDevice device_;
};

TEST_F(Activations, ComeBackInReverseOrderTheSame) {
  for (const Place place : {Place::host, Place::nvme}) {
    LowerTiers lower = tiers();
    ActivationStore store(lower, place);
    std::vector<Saved> saved;
    for (std::uint64_t seed = 0; seed < 10; ++seed) saved.push_back(store.save(value(seed)));
    for (std::uint64_t seed = 10; seed-- > 0;) {
      EXPECT_EQ(saved[seed]().to_floats(), value(seed).to_floats()) << name_of(place) << " " << seed;
      EXPECT_EQ(saved[seed]().to_floats(), value(seed).to_floats()) << "asked again";
      saved.pop_back();
    }
    lower.drain();
    EXPECT_EQ(lower.at(place).current()[Kind::activations], 0);
    EXPECT_EQ(on_device(), 0);
  }
}

TEST_F(Activations, AnyOrderGivesTheSameValues) {
  LowerTiers lower = tiers();
  ActivationStore store(lower, Place::host);
  std::vector<Saved> saved;
  for (std::uint64_t seed = 0; seed < 6; ++seed) saved.push_back(store.save(value(seed)));
  for (const std::uint64_t seed : {0, 3, 5, 1, 4, 2})
    EXPECT_EQ(saved[seed]().to_floats(), value(seed).to_floats()) << seed;
}

TEST_F(Activations, TheDeviceHoldsNoMoreThanThoseThatAreLeaving) {
  LowerTiers lower = tiers();
  ActivationStore store(lower, Place::host);
  std::vector<Saved> saved;
  std::int64_t most = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    saved.push_back(store.save(value(seed)));
    most = std::max(most, on_device());
  }
  EXPECT_LE(most, 3 * kValueBytes + 3 * 256);
  EXPECT_EQ(lower.host().current()[Kind::activations], 20 * kValueBytes);
  EXPECT_EQ(lower.carried().to_host, 20 * kValueBytes);
}

TEST_F(Activations, SmallValuesStayOnTheDevice) {
  LowerTiers lower = tiers();
  ActivationStore store(lower, Place::nvme);
  const Tensor small = random_tensor({ActivationStore::kLeastBytes / 4 - 1}, 1);
  const Saved saved = store.save(small);
  EXPECT_EQ(saved().view().data, small.view().data);
  EXPECT_EQ(lower.carried().to_host, 0);
  EXPECT_EQ(lower.nvme()->peak().total, 0);
}

TEST_F(Activations, WhatIsNeverAskedForIsGivenBack) {
  LowerTiers lower = tiers();
  {
    ActivationStore store(lower, Place::nvme);
    std::vector<Saved> saved;
    for (std::uint64_t seed = 0; seed < 5; ++seed) saved.push_back(store.save(value(seed)));
    (void)saved[4]();  // fetches the one before, too
  }
  EXPECT_EQ(lower.nvme()->current().total, 0);
  EXPECT_EQ(on_device(), 0);
}

TEST_F(Activations, AWriteThatFailsIsAnErrorOfThePass) {
  FaultAt faults(IoFault::error, 0);
  LowerTiers lower = tiers(&faults);
  ActivationStore store(lower, Place::nvme);
  const auto text = error_text([&] {
    std::vector<Saved> saved;
    for (std::uint64_t seed = 0; seed < 5; ++seed) saved.push_back(store.save(value(seed)));
    (void)saved[0]();
  });
  EXPECT_TRUE(names(text, "cannot write", "Input/output error"));
}

}  // namespace
}  // namespace zeepo
