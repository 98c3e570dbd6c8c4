#include "zeepo/device/mapped_memory.h"

#include <gtest/gtest.h>

#include <cstring>

namespace zeepo {
namespace {

std::unique_ptr<MappedMemory> make() {
  ThreadPool pool(1);
  CpuStream stream(pool);
  return make_mapped_memory(stream);
}

TEST(MappedMemory, OnePieceIsBehindSeveralRanges) {
  const auto memory = make();
  const std::size_t bytes = memory->whole(10000);
  std::byte* const first = memory->reserve(bytes);
  std::byte* const second = memory->reserve(bytes);
  const std::size_t piece = memory->take(bytes);
  memory->map(first, bytes, piece);
  memory->map(second, bytes, piece);
  std::memset(first, 7, bytes);
  EXPECT_EQ(second[bytes - 1], std::byte{7});
}

TEST(MappedMemory, ARangeGetsAnotherPieceAndTheFirstAgain) {
  const auto memory = make();
  const std::size_t bytes = memory->granularity();
  std::byte* const at = memory->reserve(bytes);
  const std::size_t one = memory->take(bytes), other = memory->take(2 * bytes);
  memory->map(at, bytes, one);
  std::memset(at, 1, bytes);
  memory->map(at, bytes, other);
  EXPECT_EQ(at[0], std::byte{0});
  memory->unmap(at, bytes);
  memory->map(at, bytes, one);
  EXPECT_EQ(at[bytes - 1], std::byte{1});
}

TEST(MappedMemoryDeathTest, WhatIsUnmappedCannotBeRead) {
  const auto memory = make();
  const std::size_t bytes = memory->granularity();
  std::byte* const at = memory->reserve(bytes);
  memory->map(at, bytes, memory->take(bytes));
  memory->unmap(at, bytes);
  EXPECT_DEATH(
      {
        volatile std::byte read = at[0];
        static_cast<void>(read);
      },
      "");
}

}  // namespace
}  // namespace zeepo
