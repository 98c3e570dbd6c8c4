// A model that is ready to be asked: where its weights live, the memory that this takes, the engine that streams them.
//
// Weights live on the device, in host memory or in files, and on several ranks each rank keeps its part; what a pass
// needs is fetched ahead of its use. Memory is planned beforehand by doing all of the work with shapes alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "zeepo/binding/model_engine.h"
#include "zeepo/budget/absent_ranks.h"
#include "zeepo/budget/budgets.h"
#include "zeepo/infer/model_files.h"
#include "zeepo/model/language_model.h"
#include "zeepo/model/weight_files.h"
#include "zeepo/zero/session.h"

namespace zeepo {

// Whether an int4 copy of the weights that passes fetch drafts tokens: where it is likely to be faster, on a link that
// is known to be slow.
enum class Drafts { none, wanted, if_faster };

struct InferenceOptions {
  std::string command;  // that errors name
  std::filesystem::path model;
  std::filesystem::path cache_directory;  // of quantised weights; empty: they are not kept
  Backend backend = Backend::cpu;
  DType dtype = DType::f32;
  CodedType weights = CodedType::same;  // how they are stored, wherever they live
  bool batch_invariant = false;         // see device/devices.h
  int threads = 0;
  Shares params = {};        // offloaded
  Place kv = Place::device;  // the KV cache, there or in host memory
  bool kv_int8 = false;      // its keys and values are coded
  Drafts drafts = Drafts::none;
  Place draft_place = Place::device;  // chosen, the nearest that has room
  CachePolicy cache = CachePolicy::fixed;
  std::int64_t prefetch_bytes = EngineOptions{}.prefetch_bytes;
  std::int64_t blocks_per_unit = 1;
  struct {
    bool params = false, prefetch = false;
  } choose;                                                       // within the budgets, instead
  std::int64_t device_bytes = 0, host_bytes = 0, nvme_bytes = 0;  // budgets; 0: what the machine has
  std::vector<std::filesystem::path> nvme_paths = {};
  // Weights that live in files are copied to nvme_paths, with checksums, even where the model's own files have them.
  bool copy_weights = false;
  std::shared_ptr<const WeightsInFiles> in_files = {};          // those: an Inference finds them; none: all are copied
  double link_bytes_per_second = 0, nvme_bytes_per_second = 0;  // simulated; 0: as they are
  Timeline* timeline = nullptr;                                 // where what is done is written down, if anywhere
};

// Of the KV cache: see cached_width(). Of work that is planned for, that of the engine which does it: the way out of an
// error may be another dtype than was asked for.
inline DType kv_dtype(const InferenceOptions& options) { return options.kv_int8 ? DType::u8 : options.dtype; }
inline DType kv_dtype(const InferenceOptions& options, const ModelEngine& engine) {
  return options.kv_int8 ? DType::u8 : engine.plan().options.dtype;
}

// Throws UsageError for options that are out of range or contradict each other.
void check(const InferenceOptions& options);

// As options of the command that give the same placement again.
std::string placement_flags(const InferenceOptions& options);

// All that will be done with the engine.
using InferenceWork = std::function<void(ModelEngine&, LanguageModel&)>;

// Does the work with shapes alone, on one rank of any number: what it needs of each tier. With a clock, which is
// borrowed, the time that it would take.
MemoryPlan dry_inference(const InferenceOptions& options, const ModelConfig& config, const RankShape& ranks,
                         const InferenceWork& work, SimulatedTime* time = nullptr);

struct InferencePlan {
  InferenceOptions options;  // with the placement in force
  MemoryPlan memory;
  PlaceBytes budgets;
};

// Pure: any rank of any number can be planned for. Throws Error when the work does not fit, with a way out that has
// been tried. `rooms` are those of all ranks.
InferencePlan plan_inference(const InferenceOptions& options, const ModelConfig& config, const RankShape& ranks,
                             const std::vector<RankRoom>& rooms, const InferenceWork& work);

// The same where the work may not fit: without an error, the nearest of the placements that were to be chosen from.
InferencePlan try_inference(const InferenceOptions& options, const ModelConfig& config, const RankShape& ranks,
                            const std::vector<RankRoom>& rooms, const InferenceWork& work);

class Inference {
 public:
  // Plans, takes the memory and loads the weights. Every rank makes one, of the same options. Of several kinds of work
  // the first that fits on all ranks is planned for; where none does, the last one's error is thrown.
  Inference(const InferenceOptions& options, Communicator& communicator, const std::vector<InferenceWork>& works);
  Inference(const InferenceOptions& options, Communicator& communicator, const InferenceWork& work)
      : Inference(options, communicator, std::vector<InferenceWork>{work}) {}

  const InferencePlan& plan() const { return plan_; }
  // Which work is planned for.
  std::size_t planned() const { return planned_; }
  Session& session() { return *session_; }
  ModelEngine& engine() { return *engine_; }
  LanguageModel& model() { return *model_; }
  // Of the weights that live in files on this rank.
  FilesInUse files() const { return files_in_use(engine_->plan()); }

 private:
  void load(const WeightFiles& files, Communicator& communicator);

  ModelConfig config_;
  std::size_t planned_ = 0;
  InferencePlan plan_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<ModelEngine> engine_;
};

}  // namespace zeepo
