// Bytes between a device, host memory and files: they arrive, in order, or the waiter is told why not.
#include "zeepo/memory/lower_tiers.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/io_faults.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

using Bytes = std::vector<std::byte>;
constexpr std::size_t kMiB = 1 << 20, kPage = SwapTier::kPageBytes;

Bytes pattern(std::size_t bytes, unsigned seed) {
  Bytes values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::byte>(i * 7 + i / 251 + seed * 31);
  return values;
}

class LowerTiersTest : public testing::Test {
 protected:
  LowerTiers::Options options() const {
    return {.host_bytes = 32 * kMiB,
            .nvme_paths = {directory_.path()},
            .nvme_bytes = 16 * kMiB,
            .staging_bytes = kMiB,
            .io = {.backend = IoBackend::threads, .threads = 2}};
  }
  LowerTiers tiers(const LowerTiers::Options& options) { return LowerTiers(options, stream_, stream_); }
  LowerTiers tiers() { return tiers(options()); }

  TestDirectory directory_;
  ThreadPool pool_{2};
  CpuStream stream_{pool_};
};

TEST_F(LowerTiersTest, WhatGoesDownComesUpTheSame) {
  LowerTiers lower = tiers();
  for (const Place place : {Place::host, Place::nvme})
    // Within a page, a page, several staging buffers, and no whole number of anything.
    for (const std::size_t bytes : {std::size_t{1}, kPage, 3 * kMiB, 3 * kMiB + 12345}) {
      const Block block = lower.at(place).allocate(bytes + kPage, Kind::params);
      const Bytes values = pattern(bytes, 1);
      Bytes back(bytes);
      lower.from_device(values.data(), block, kPage, bytes, {"test"}).wait();
      lower.to_device(block, kPage, back.data(), bytes, {"test"}).wait();
      EXPECT_EQ(back, values) << name_of(place) << " " << bytes;
    }
}

TEST_F(LowerTiersTest, FilesAreReadAndWrittenForTheHostToo) {
  LowerTiers lower = tiers();
  const std::size_t bytes = 2 * kPage;
  const Block block = lower.at(Place::nvme).allocate(bytes, Kind::optimizer);
  const Block memory = lower.host().allocate(2 * bytes, Kind::working);
  const Bytes values = pattern(bytes, 2);
  std::memcpy(memory.data(), values.data(), bytes);
  Completion written = lower.write(memory.data(), block, 0, bytes, {"test"});
  lower.read(block, 0, memory.data() + bytes, bytes, {"test"}, {written}).wait();
  EXPECT_EQ(std::memcmp(memory.data() + bytes, values.data(), bytes), 0);
  const LinkBytes carried = lower.carried();
  EXPECT_EQ(carried.read, static_cast<std::int64_t>(bytes));
  EXPECT_EQ(carried.written, static_cast<std::int64_t>(bytes));
  EXPECT_EQ(carried.to_device + carried.to_host, 0);
}

TEST_F(LowerTiersTest, ADirectionKeepsTheOrderGiven) {
  LowerTiers lower = tiers();
  const Block block = lower.host().allocate(kMiB, Kind::params);
  std::vector<Bytes> values;
  for (unsigned i = 0; i < 50; ++i) values.push_back(pattern(kMiB, i));
  std::vector<Completion> given;
  for (const Bytes& value : values) given.push_back(lower.from_device(value.data(), block, 0, kMiB, {"test"}));
  given.back().wait();  // the last one: all before it are done
  EXPECT_EQ(std::memcmp(block.data(), values.back().data(), kMiB), 0);
  for (Completion& completion : given) completion.wait();
}

TEST_F(LowerTiersTest, ATransferUpStartsAfterWhatItWasToldToAwait) {
  LowerTiers::Options slow = options();
  slow.link_bytes_per_second = 20 * kMiB;
  LowerTiers lower = tiers(slow);
  const Block block = lower.at(Place::nvme).allocate(2 * kMiB, Kind::params);
  const Bytes values = pattern(2 * kMiB, 3);
  Bytes back(2 * kMiB), again(2 * kMiB);
  const Block memory = lower.host().allocate(2 * kMiB, Kind::working);
  Completion down = lower.from_device(values.data(), block, 0, values.size(), {"test"});
  // Pages that are being written cannot be read: without the order this would throw.
  Completion up = lower.to_device(block, 0, back.data(), back.size(), {"test"}, {down});
  Completion read = lower.read(block, 0, memory.data(), memory.bytes(), {"test"}, {down});
  Completion out_of_band = lower.upload_out_of_band({{memory.data(), again.data(), again.size()}}, {"test"}, {read});
  up.wait();
  out_of_band.wait();
  EXPECT_EQ(back, values);
  EXPECT_EQ(again, values);
}

TEST_F(LowerTiersTest, OutOfBandPassesWhatIsQueued) {
  LowerTiers lower = tiers();
  Worker gate;
  std::atomic<bool> open = false;
  Completion opened = gate.run([&] {
    while (!open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  const Block block = lower.host().allocate(kMiB, Kind::params);
  Bytes held(kMiB), passed(kMiB);
  Completion queued = lower.to_device(block, 0, held.data(), kMiB, {"test"}, {opened});
  lower.upload_out_of_band({{block.data(), passed.data(), kMiB}}, {"test"}, {})
      .wait();  // would wait for ever behind it
  lower.download_out_of_band({{passed.data(), block.data(), kMiB}}, {"test"}, {}).wait();
  open = true;
  queued.wait();
}

TEST_F(LowerTiersTest, DrainWaitsForEveryDirection) {
  LowerTiers::Options slow = options();
  slow.link_bytes_per_second = 50 * kMiB;
  LowerTiers lower = tiers(slow);
  const Block host = lower.host().allocate(4 * kMiB, Kind::params);
  const Block files = lower.at(Place::nvme).allocate(2 * kMiB, Kind::params);
  const Bytes values = pattern(2 * kMiB, 5);
  Bytes back(2 * kMiB);
  std::memcpy(host.data(), values.data(), values.size());
  (void)lower.upload(host.data(), back.data(), back.size(), {"test"});
  (void)lower.from_device(values.data(), host, 2 * kMiB, values.size(), {"test"});
  (void)lower.write(host.data(), files, 0, values.size(), {"test"});
  lower.drain();
  EXPECT_EQ(back, values);
  EXPECT_EQ(std::memcmp(host.data() + 2 * kMiB, values.data(), values.size()), 0);
  lower.read(files, 0, host.data() + 2 * kMiB, values.size(), {"test"}).wait();
  lower.drain();  // with nothing on its way
}

TEST_F(LowerTiersTest, AFailureOfTheFilesIsTheWaiters) {
  for (const bool while_reading : {false, true}) {
    FaultAt faults(IoFault::error, while_reading ? 4 : 0);
    LowerTiers::Options faulty = options();
    faulty.io.faults = &faults;
    LowerTiers lower = tiers(faulty);
    const Block block = lower.at(Place::nvme).allocate(4 * kMiB, Kind::params);
    const Bytes values = pattern(4 * kMiB, 6);
    Bytes back(4 * kMiB);
    Completion down = lower.from_device(values.data(), block, 0, values.size(), {"test"});
    Completion up = lower.to_device(block, 0, back.data(), back.size(), {"test"}, {down});
    if (while_reading)
      EXPECT_NO_THROW(down.wait());
    else
      EXPECT_TRUE(names(error_text([&] { down.wait(); }), "cannot write", "Input/output error"));
    // Who waits for what has failed fails with the same cause; so does the drain.
    const std::string_view cause = while_reading ? "cannot read" : "cannot write";
    EXPECT_TRUE(names(error_text([&] { up.wait(); }), cause));
    EXPECT_TRUE(names(error_text([&] { lower.drain(); }), cause));
    EXPECT_TRUE(faults.struck());
  }
}

TEST_F(LowerTiersTest, BytesThatTheDiskChangedAreNoticed) {
  FaultAt faults(IoFault::flipped_bit, 0);
  LowerTiers::Options faulty = options();
  faulty.io.faults = &faults;
  LowerTiers lower = tiers(faulty);
  const Block block = lower.at(Place::nvme).allocate(kMiB, Kind::params);
  const Bytes values = pattern(kMiB, 7);
  Bytes back(kMiB);
  lower.from_device(values.data(), block, 0, kMiB, {"test"}).wait();
  Completion up = lower.to_device(block, 0, back.data(), kMiB, {"test"});
  EXPECT_TRUE(names(error_text([&] { up.wait(); }), "other bytes than were written"));
}

TEST_F(LowerTiersTest, ADryOneLeasesAndMovesNothing) {
  DryStream dry;
  LowerTiers::Options none = options();
  none.nvme_paths = {"/no/such/directory"};
  LowerTiers lower(none, dry, dry);
  for (const Place place : {Place::host, Place::nvme}) {
    const Block block = lower.at(place).allocate(std::size_t{1} << 45, Kind::params);
    EXPECT_EQ(block.data(), nullptr);
    lower.to_device(block, 0, nullptr, block.bytes(), {}).wait();
    lower.from_device(nullptr, block, 0, block.bytes(), {}).wait();
    lower.read(block, 0, nullptr, block.bytes(), {}).wait();
    lower.write(nullptr, block, 0, block.bytes(), {}).wait();
  }
  lower.drain();
  EXPECT_EQ(lower.carried().to_device + lower.carried().read + lower.carried().written + lower.carried().to_host, 0);
  EXPECT_EQ(lower.description(), "");
  EXPECT_EQ(lower.staging_bytes(), static_cast<std::int64_t>(4 * kMiB));  // the plan counts them
}

TEST_F(LowerTiersTest, FilesOfNothingAreNoFault) {
  LowerTiers::Options nothing = options();
  nothing.nvme_bytes = 0;
  nothing.nvme_paths = {directory_.path() / "none"};  // nothing is made there
  LowerTiers lower = tiers(nothing);
  ASSERT_NE(lower.nvme(), nullptr);
  EXPECT_EQ(lower.nvme()->budget_bytes(), 0u);
  EXPECT_EQ(lower.description(), "");
  lower.register_buffers({});
  const Block empty = lower.at(Place::nvme).allocate(0, Kind::params);
  lower.to_device(empty, 0, nullptr, 0, {}).wait();
  lower.from_device(nullptr, empty, 0, 0, {}).wait();
  lower.read(empty, 0, nullptr, 0, {}).wait();
  lower.write(nullptr, empty, 0, 0, {}).wait();
  lower.drain();
  EXPECT_TRUE(names(error_text([&] { (void)lower.at(Place::nvme).allocate(1, Kind::params); }), "nvme", "do not fit"));
  nothing.nvme_bytes = -1;
  EXPECT_TRUE(names(error_text([&] { tiers(nothing); }), "-1"));
}

TEST_F(LowerTiersTest, PlacesThatAreNotThereAreNamed) {
  LowerTiers::Options none = options();
  none.nvme_paths = {};
  LowerTiers lower = tiers(none);
  EXPECT_EQ(lower.nvme(), nullptr);
  EXPECT_EQ(lower.staging_bytes(), 0);
  EXPECT_TRUE(names(error_text([&] { (void)lower.at(Place::nvme); }), "--nvme-path"));
  EXPECT_TRUE(names(error_text([&] { (void)lower.at(Place::device); }), "device"));
}

// At least the link's time: sleeping longer is the machine's business.
TEST_F(LowerTiersTest, AThrottledLinkTakesItsTimeAndTheWaitIsCounted) {
  LowerTiers::Options slow = options();
  slow.link_bytes_per_second = 40 * kMiB;
  LowerTiers lower = tiers(slow);
  const Block block = lower.host().allocate(4 * kMiB, Kind::params);
  Bytes back(4 * kMiB);
  std::memset(block.data(), 3, block.bytes());
  Completion up = lower.to_device(block, 0, back.data(), back.size(), {"test"});
  lower.wait(up, Place::host);
  EXPECT_GE(lower.stalled_seconds(Place::host), 0.095);
  EXPECT_EQ(lower.stalled_seconds(Place::nvme), 0);
  EXPECT_EQ(back.back(), std::byte{3});
}

TEST_F(LowerTiersTest, ThrottledFilesTakeTheirTime) {
  LowerTiers::Options slow = options();
  slow.nvme_bytes_per_second = 40 * kMiB;
  LowerTiers lower = tiers(slow);
  EXPECT_TRUE(names(lower.description(), "throttled to 41.943 MB/s"));
  const Block block = lower.at(Place::nvme).allocate(4 * kMiB, Kind::params);
  const Bytes values = pattern(4 * kMiB, 8);
  Completion down = lower.from_device(values.data(), block, 0, values.size(), {"test"});
  lower.wait(down, Place::nvme);
  EXPECT_GE(lower.stalled_seconds(Place::nvme), 0.095);
}

TEST_F(LowerTiersTest, BuffersAreRegisteredOnce) {
  LowerTiers lower = tiers();
  const Block block = lower.host().allocate(kMiB, Kind::working);
  lower.register_buffers({&block});
  EXPECT_NO_THROW(lower.register_buffers({&block}));  // the engine itself would throw
}

}  // namespace
}  // namespace zeepo
