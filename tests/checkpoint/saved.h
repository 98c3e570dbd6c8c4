// A checkpoint of two ranks written without an engine: two weights cut over them, one of them not trained.
#pragma once

#include <vector>

#include "tests/support/test_directory.h"
#include "zeepo/checkpoint/checkpoint.h"
#include "zeepo/checkpoint/checkpoint_directory.h"
#include "zeepo/checkpoint/rank_file.h"

namespace zeepo {

inline constexpr std::int64_t kWide = 300, kFixed = 40;

inline float value_at(std::size_t kind, std::int64_t i) {
  return static_cast<float>(kind * 1000) + 0.25f * static_cast<float>(i);
}

// The states of one rank: half of "wide", which is trained, and half of "fixed".
struct FakeRank {
  explicit FakeRank(int rank) {
    const std::int64_t half = kWide / 2, rest = kFixed / 2;
    parts.push_back({0, {0, half}, 0, {{"wide", {kWide}, rank * half, half, 0}}});
    parts.push_back({1, {0, rest}, {}, {{"fixed", {kFixed}, rank * rest, rest, 0}}});
    for (std::size_t kind = 0; kind < 3; ++kind) {
      arrays.emplace_back();
      for (std::int64_t i = 0; i < half; ++i) arrays.back().push_back(value_at(kind, rank * half + i));
    }
    for (std::int64_t i = 0; i < rest; ++i) fixed.push_back(value_at(7, rank * rest + i));
  }
  View view(std::vector<float>& values) {
    return {values.data(), DType::f32, {static_cast<std::int64_t>(values.size())}};
  }
  void write(RankFile& file) {
    StateViews states;
    states.moments = {view(arrays[1]), view(arrays[2])};
    file.write(1, {}, view(fixed));
    file.write(0, states, view(arrays[0]));
  }

  std::vector<SnapshotPart> parts;
  std::vector<std::vector<float>> arrays;
  std::vector<float> fixed;
};

// The model's own files.
inline std::filesystem::path model_in(const TestDirectory& directory) {
  std::filesystem::create_directories(directory.path() / "source");
  directory.write("source/config.json", R"({"model_type": "llama"})");
  directory.write("source/tokenizer.json", "{}");
  return directory.path() / "source";
}

// Throws Error when any of it fails.
inline void save(FileOperations& operations, const std::filesystem::path& directory, const std::filesystem::path& model,
                 std::int64_t step) {
  CheckpointDirectory checkpoints(operations, directory);
  checkpoints.begin(step);
  for (int rank = 0; rank < 2; ++rank) {
    FakeRank states(rank);
    RankFile file(operations, partial_path(directory, step), rank, states.parts, {.moments = 2});
    states.write(file);
    if (!file.failure().empty()) throw Error("{}", file.failure());
  }
  Manifest manifest;
  manifest.step = step;
  manifest.ranks = 2;
  manifest.moments = 2;
  manifest.dtype = "fp32";
  manifest.weights = {{"fixed", {kFixed}}, {"wide", {kWide}}};
  checkpoints.publish(manifest, model);
}

inline void expect_whole(const std::filesystem::path& path) {
  Checkpoint checkpoint(path);
  checkpoint.verify();
  for (std::size_t kind = 0; kind < 3; ++kind) {
    std::vector<float> values(kWide - 7);
    checkpoint.read("wide", kind, 7, values);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], value_at(kind, static_cast<std::int64_t>(i) + 7));
  }
  std::vector<float> fixed(kFixed), moment(kFixed, 1.0f);
  checkpoint.read("fixed", 0, 0, fixed);
  checkpoint.read("fixed", 1, 0, moment);
  for (std::size_t i = 0; i < fixed.size(); ++i) {
    ASSERT_EQ(fixed[i], value_at(7, static_cast<std::int64_t>(i)));
    ASSERT_EQ(moment[i], 0.0f);
  }
}

}  // namespace zeepo
