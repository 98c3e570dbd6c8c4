#include "zeepo/ops/paged_attention.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/test_device.h"
#include "zeepo/base/rng.h"
#include "zeepo/memory/lower_tiers.h"

namespace zeepo {
namespace {

constexpr HeadLayout kHeads{6, 2, 16};
constexpr std::int64_t kPageRows = 4, kPages = 40;

std::vector<float> drawn(std::uint64_t key, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  fill_normal(RngKey{key}, 0, values);
  return values;
}

LayerPages make_pages(Place place = Place::device, DType dtype = DType::f32) {
  return LayerPages({kPages, kPageRows, cached_width(kHeads.kv_heads, kHeads.head_dim, dtype)}, dtype, place);
}

// All positions at once; with coded keys and values where the type says so.
std::vector<float> at_once(const Tensor& qkv, const AttentionOptions& options, DType dtype) {
  if (dtype == DType::f32) return attention(qkv, kHeads, options).to_floats();
  const Shape shape{1, qkv.shape()[1], cached_width(kHeads.kv_heads, kHeads.head_dim, dtype)};
  LayerCache cache{Tensor(shape, dtype), Tensor(shape, dtype)};
  return attention(qkv, kHeads, options, cache).to_floats();
}

struct OneSequence {
  std::vector<std::int32_t> pages;
  std::vector<std::int64_t> chunks;
};

// Sequences go through passes chunk by chunk together; alone each goes through a cache of its own at once.
void expect_each_alone(Place place, DType dtype = DType::f32) {
  TestDevice device;
  LowerTiers lower({.host_bytes = 1 << 24, .nvme_paths = {}}, device.stream(), device.stream());
  const DeviceScope scope(device.stream(), device.memory(), &lower);
  const std::vector<OneSequence> sequences{{{0, 1, 2, 3, 4}, {1, 7, 1, 9}},
                                           {{9, 5, 30, 6}, {13, 1, 1, 1}},
                                           {{10, 11, 20, 21, 22, 12, 13, 14, 15, 16}, {5, 20, 14, 1}},
                                           {{39}, {1, 1, 1, 1}}};
  for (const std::int64_t window : {0, 6}) {
    const AttentionOptions options{.scale = 0.25f, .window = window};
    const std::int64_t width = kHeads.width(), out_width = kHeads.heads * kHeads.head_dim;
    std::vector<std::vector<float>> inputs, expected;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      std::int64_t length = 0;
      for (const std::int64_t chunk : sequences[i].chunks) length += chunk;
      inputs.push_back(drawn(i, length * width));
      expected.push_back(at_once(Tensor::from<float>(inputs[i], {1, length, width}), options, dtype));
    }
    LayerPages pages = make_pages(place, dtype);
    std::vector<std::int64_t> past(sequences.size(), 0);
    for (std::size_t step = 0; step < 4; ++step) {
      std::vector<float> together;
      std::vector<PagedSequence> parts;
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        const std::int64_t rows = sequences[i].chunks[step];
        const auto begin = inputs[i].begin() + past[i] * width;
        together.insert(together.end(), begin, begin + rows * width);
        parts.push_back({past[i], rows, sequences[i].pages});
      }
      const std::int64_t rows = static_cast<std::int64_t>(together.size()) / width;
      const auto got =
          attention(Tensor::from<float>(together, {1, rows, width}), kHeads, options, pages, parts).to_floats();
      std::int64_t row = 0;
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        for (std::int64_t e = 0; e < parts[i].rows * out_width; ++e)
          ASSERT_EQ(got[static_cast<std::size_t>(row * out_width + e)],
                    expected[i][static_cast<std::size_t>(past[i] * out_width + e)])
              << "sequence " << i << ", step " << step << ", window " << window;
        row += parts[i].rows;
        past[i] += parts[i].rows;
      }
    }
  }
}

TEST(PagedAttention, IsThatOfEachSequenceAloneToTheBit) {
  expect_each_alone(Place::device);
  expect_each_alone(Place::host);
}

TEST(PagedAttention, OfCodedKeysAndValuesIsThatOfEachSequenceAloneToTheBit) {
  expect_each_alone(Place::device, DType::u8);
  expect_each_alone(Place::host, DType::u8);
}

// More positions than a block has, and one sequence that is longer than a block: fetched as if they were on the device.
TEST(PagedAttention, OfBlocksFromHostMemoryIsThatOfPagesOnTheDevice) {
  TestDevice device;
  LowerTiers lower({.host_bytes = 1 << 24, .nvme_paths = {}}, device.stream(), device.stream());
  const DeviceScope scope(device.stream(), device.memory(), &lower);
  constexpr std::int64_t kRows = 64;
  const std::vector<std::int64_t> lengths{500, 400, 200, kHostBlockPositions + 100, 30, 700, 300, 25, 1};
  std::vector<std::vector<std::int32_t>> pages_of;
  std::int32_t next = 0;
  for (const std::int64_t length : lengths) {
    auto& pages = pages_of.emplace_back();
    for (std::int64_t page = 0; page * kRows <= length; ++page) pages.push_back(next++);
  }
  std::vector<std::vector<float>> results;
  for (const Place place : {Place::device, Place::host}) {
    LayerPages pages({next, kRows, cached_width(kHeads.kv_heads, kHeads.head_dim, DType::f32)}, DType::f32, place);
    for (const bool prompts : {true, false}) {
      std::vector<PagedSequence> parts;
      std::int64_t rows = 0;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        parts.push_back({prompts ? 0 : lengths[i], prompts ? lengths[i] : 1, pages_of[i]});
        rows += parts.back().rows;
      }
      const auto input = Tensor::from<float>(drawn(prompts ? 1 : 2, rows * kHeads.width()), {1, rows, kHeads.width()});
      results.push_back(attention(input, kHeads, {.scale = 0.25f}, pages, parts).to_floats());
    }
  }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
}

TEST(PagedAttention, PagesBelowTheDeviceNeedATierThere) {
  const TestDevice device;
  EXPECT_TRUE(names(error_text([] { make_pages(Place::host); }), "no host memory"));
}

TEST(PagedAttention, WhatDoesNotFitIsRefused) {
  const TestDevice device;
  LayerPages pages = make_pages();
  const Tensor qkv({1, 3, kHeads.width()});
  const auto text = [&](const std::vector<PagedSequence>& parts) {
    return error_text([&] { attention(qkv, kHeads, {.scale = 1}, pages, parts); });
  };
  const std::vector<std::int32_t> one{2}, outside{static_cast<std::int32_t>(kPages)};
  EXPECT_TRUE(names(text({{2, 3, one}}), "3 positions after 2", "4"));
  EXPECT_TRUE(names(text({{0, 3, outside}}), "page 40"));
  EXPECT_TRUE(names(text({{0, 2, one}}), "2 rows"));
  EXPECT_TRUE(names(text({{0, 0, one}, {0, 3, one}}), "0 positions"));
}

}  // namespace
}  // namespace zeepo
