#include "zeepo/torch/torch_checkpoint.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/checkpoint/checkpoint.h"
#include "zeepo/checkpoint/checkpoint_directory.h"
#include "zeepo/checkpoint/rank_file.h"
#include "zeepo/zero/agreement.h"
#include "zeepo/zero/rank_report.h"
#include "zeepo/zero/session.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBuffersName = "buffers.safetensors";

// What has failed on any rank fails on all, so that none waits for another.
class SharedFailure {
 public:
  explicit SharedFailure(Communicator& ranks) : ranks_(ranks) {}

  template <class F>
  void attempt(const F& f) {
    if (!failure_.empty()) return;
    try {
      f();
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  }
  void note(const std::string& failure) {
    if (failure_.empty()) failure_ = failure;
  }
  bool here() const { return !failure_.empty(); }
  bool any() { return !of_any().empty(); }
  void check() {
    if (const std::string failure = of_any(); !failure.empty()) throw Error("{}", failure);
  }

 private:
  std::string of_any() {
    const auto all = gather_texts(ranks_, failure_);
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      if (!all[rank].empty()) return all.size() == 1 ? all[rank] : fmt::format("rank {}: {}", rank, all[rank]);
    return "";
  }

  Communicator& ranks_;
  std::string failure_;
};

std::vector<std::int64_t> extents_of(const Shape& shape) {
  std::vector<std::int64_t> extents;
  for (int i = 0; i < shape.rank(); ++i) extents.push_back(shape[i]);
  return extents;
}

Manifest manifest_of(Engine& engine, Communicator& ranks) {
  Manifest manifest;
  manifest.progress = engine.progress();
  manifest.step = std::max<std::int64_t>(manifest.progress.steps_taken, 1);
  manifest.ranks = ranks.size();
  manifest.moments = format_of(engine.plan().options).moments;
  manifest.dtype = name_of(engine.plan().options.dtype);
  for (const WeightSlice& slice : engine.settled_io().slices())
    manifest.weights.push_back({slice.name, extents_of(slice.shape)});
  return manifest;
}

// Rank 0's view, for all ranks.
fs::path newest_of(Communicator& ranks, const fs::path& directory) {
  SharedFailure failure(ranks);
  std::string own;
  if (ranks.rank() == 0)
    failure.attempt([&] {
      if (fs::exists(directory / kManifestName)) {
        own = directory.string();
        return;
      }
      const auto found = list_checkpoints(directory);
      if (found.empty()) throw Error("load: {}: there is no checkpoint", directory.string());
      own = found.back().path.string();
    });
  failure.check();
  return gather_texts(ranks, own)[0];
}

void check_weights(Engine& engine, const Checkpoint& checkpoint) {
  const auto slices = engine.settled_io().slices();
  const auto& saved = checkpoint.manifest().weights;
  for (std::size_t i = 0; i < std::min(slices.size(), saved.size()); ++i)
    if (slices[i].name != saved[i].name || extents_of(slices[i].shape) != saved[i].shape)
      throw Error("load: {}: has {} {}, and the module has {} {}", checkpoint.path().string(), saved[i].name,
                  saved[i].shape, slices[i].name, extents_of(slices[i].shape));
  if (slices.size() != saved.size())
    throw Error("load: {}: has {} weights, and the module has {}", checkpoint.path().string(), saved.size(),
                slices.size());
  const std::size_t moments = format_of(engine.plan().options).moments;
  if (checkpoint.manifest().moments != moments)
    throw Error("load: {}: has {} moments a weight, and this optimizer keeps {}", checkpoint.path().string(),
                checkpoint.manifest().moments, moments);
}

}  // namespace

fs::path save_checkpoint(Engine& engine, Communicator& ranks, const fs::path& directory, const std::string& buffers) {
  engine.settle();
  FileOperations operations;
  SharedFailure failure(ranks);
  const Manifest manifest = manifest_of(engine, ranks);
  std::optional<CheckpointDirectory> checkpoints;
  if (ranks.rank() == 0)
    failure.attempt([&] {
      checkpoints.emplace(operations, directory);
      checkpoints->begin(manifest.step);
    });
  failure.check();
  {
    RankFile file(operations, partial_path(directory, manifest.step), ranks.rank(), engine.snapshot().parts(),
                  format_of(engine.plan().options));
    engine.snapshot().begin(
        [&file](std::size_t part, const StateViews& states, const View& param) { file.write(part, states, param); });
    engine.snapshot().finish();
    failure.note(file.failure());
  }
  const bool failed = failure.any();
  std::map<std::string, std::string> further;
  if (!buffers.empty()) further.emplace(kBuffersName, buffers);
  if (checkpoints && !failed) failure.attempt([&] { checkpoints->publish(manifest, {}, further); });
  if (checkpoints && (failed || failure.here())) checkpoints->abandon(manifest.step);
  failure.check();
  return checkpoint_path(directory, manifest.step);
}

FoundCheckpoint find_checkpoint(Communicator& ranks, const fs::path& directory) {
  FoundCheckpoint found{newest_of(ranks, directory), {}};
  SharedFailure failure(ranks);
  failure.attempt([&] {
    Checkpoint checkpoint(found.path);
    checkpoint.verify_model_files();
    for (const auto& file : checkpoint.manifest().model_files)
      if (file.name == kBuffersName) found.buffers = read_text(checkpoint.model_folder() / file.name, file.bytes);
  });
  failure.check();
  return found;
}

void load_checkpoint(Engine& engine, Communicator& ranks, const fs::path& path) {
  SharedFailure failure(ranks);
  std::optional<Checkpoint> checkpoint;
  failure.attempt([&] { checkpoint.emplace(path); });
  failure.check();
  failure.attempt([&] { check_weights(engine, *checkpoint); });
  failure.check();
  // A rank that cannot read goes on with zeros: loading is a collective, and all ranks are told after it.
  const auto read = [&](const WeightSlice& slice, std::size_t kind, std::int64_t begin, std::span<float> out) {
    std::ranges::fill(out, 0.0f);
    failure.attempt([&] { checkpoint->read(slice.name, kind, begin, out); });
  };
  const SavedState saved{[&](std::size_t moment, const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
                           read(slice, moment + 1, begin, out);
                         },
                         checkpoint->manifest().progress};
  engine.load([&](const WeightSlice& slice, std::int64_t begin, std::span<float> out) { read(slice, 0, begin, out); },
              &saved);
  engine.settle();
  failure.check();
}

void export_weights(Engine& engine, Communicator& ranks, const fs::path& file, DType dtype,
                    const WeightExtents& extents, const std::vector<SafetensorsWriter::Tensor>& buffers) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  StateIo& io = engine.settled_io();
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const WeightSlice& slice : io.slices()) tensors.push_back({slice.name, dtype, extents.at(slice.name)});
  SharedFailure failure(ranks);
  std::optional<SafetensorsWriter> writer;
  if (ranks.rank() == 0)
    failure.attempt([&] {
      auto all = tensors;
      all.insert(all.end(), buffers.begin(), buffers.end());
      writer.emplace(file, std::move(all));
    });
  failure.check();
  std::vector<float> values(static_cast<std::size_t>(kPiece));
  for (const auto& tensor : tensors) {  // of one dtype, and by name: in the order of the file
    const std::int64_t elements = elements_of(tensor.name, tensor.shape);
    for (std::int64_t begin = 0; begin < elements; begin += kPiece) {
      const auto part = std::span(values).first(static_cast<std::size_t>(std::min(kPiece, elements - begin)));
      io.read(tensor.name, begin, part);
      if (writer) failure.attempt([&] { writer->write(part); });
    }
  }
  if (writer) failure.attempt([&] { writer->commit(); });
  failure.check();
}

std::string report_of(Engine& engine, Session& session) {
  nlohmann::ordered_json report{{"event", "summary"},
                                {"params", parameter_count(engine.units())},
                                {"world_size", session.communicator().size()},
                                {"weights_hash", engine.settled_io().hash()},
                                {"ranks", nlohmann::ordered_json::array()}};
  const auto own = rank_report(session, engine.moved().all().sent, session.lower().carried());
  for (const auto& text : gather_texts(session.communicator(), own.dump()))
    report["ranks"].push_back(nlohmann::ordered_json::parse(text));
  return report.dump();
}

}  // namespace zeepo
