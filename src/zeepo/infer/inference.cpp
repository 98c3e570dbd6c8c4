#include "zeepo/infer/inference.h"

#include <algorithm>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"
#include "zeepo/infer/coded_cache.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/zero/agreement.h"

namespace zeepo {
namespace {

constexpr int kSharded = 3;  // the stage with the parameters over the ranks
constexpr CodedType kDraftType = CodedType::int4;

EngineOptions engine_options(const InferenceOptions& options, const RankShape& ranks) {
  EngineOptions engine{.use = Use::infer, .dtype = options.dtype, .stage = ranks.ranks > 1 ? kSharded : 0};
  engine.stored_as = options.weights;
  engine.prefetch_bytes = options.prefetch_bytes;
  engine.blocks_per_unit = options.blocks_per_unit;
  engine.placement.params = options.params;
  engine.placement.cache = options.cache;
  engine.in_files = options.in_files;
  return engine;
}

LowerTiers::Options lower_options(const InferenceOptions& options) {
  return {.host_bytes = options.host_bytes,
          .nvme_paths = options.params.in_files() ? options.nvme_paths : std::vector<std::filesystem::path>{},
          .nvme_bytes = 0,
          .reads_others_files = options.in_files != nullptr,
          .staging_bytes = staging_bytes(options.host_bytes),
          .link_bytes_per_second = options.link_bytes_per_second,
          .nvme_bytes_per_second = options.nvme_bytes_per_second};
}

TierOptions tier_options(const InferenceOptions& options) {
  return {.command = options.command,
          .backend = options.backend,
          .device_bytes = options.device_bytes,
          .host_bytes = options.host_bytes,
          .nvme_bytes = options.nvme_bytes,
          .nvme_paths = options.nvme_paths,
          .fills_files = options.choose.params};
}

Arrangement arrangement_of(const InferenceOptions& options) {
  Arrangement arrangement;
  arrangement.placement.params = options.params;
  arrangement.placement.cache = options.cache;
  arrangement.activation_checkpointing = true;  // nothing is kept for a backward pass: no choice is left
  arrangement.prefetch_bytes = options.prefetch_bytes;
  return arrangement;
}

InferenceOptions with(InferenceOptions options, const Arrangement& arrangement) {
  options.params = arrangement.placement.params;
  options.prefetch_bytes = arrangement.prefetch_bytes;
  return options;
}

// At least one: 0 is no budget.
std::int64_t whole_mebibytes(std::int64_t bytes) {
  return std::max<std::int64_t>(1, (bytes + (1 << 20) - 1) >> 20) << 20;
}

// At least so much, in whole MiB; of the host no less than it had, unless the device takes that from it.
void give(RankRoom& room, std::int64_t device, std::int64_t host) {
  room.device_option = std::max(whole_mebibytes(room.device_option), device);
  const std::int64_t had = whole_mebibytes(room.host_option);
  room.host_option = room.one_memory && room.device_option + had > room.host_bytes ? host : std::max(had, host);
}
bool has_what_is_given(const RankRoom& room) {
  if (room.one_memory) return room.device_option + room.host_option <= room.host_bytes;
  return room.device_option <= room.device_bytes && room.host_option <= room.host_bytes;
}

// Plans one model for one rank; what is tried is a changed copy of the options.
class Planner {
 public:
  Planner(const ModelConfig& config, const RankShape& ranks, const std::vector<RankRoom>& rooms,
          const InferenceWork& work)
      : config_(config), ranks_(ranks), rooms_(rooms), work_(work) {}

  MemoryPlan memory(const InferenceOptions& options) const { return dry_inference(options, config_, ranks_, work_); }

  PlacementSearch::Result search(const InferenceOptions& options) const {
    const PlacementSearch search{.given = arrangement_of(options),
                                 .open = {.params = options.choose.params, .prefetch = options.choose.prefetch},
                                 .budgets = least_to_fill(rooms_),
                                 .plan = [&](const Arrangement& tried) { return memory(with(options, tried)).bytes; }};
    return search.run();
  }

  bool fits(const InferenceOptions& options) const {
    if (chosen(options)) return search(options).fits;
    const MemoryPlan plan = memory(options);
    return plan.fits(budgets_of(own_room(), plan));
  }

  // May not fit.
  InferencePlan tried(const InferenceOptions& given) const {
    InferencePlan plan{chosen(given) ? with(given, search(given).arrangement) : given, {}, {}};
    plan.memory = memory(plan.options);
    plan.budgets = chosen(given) ? least_to_fill(rooms_) : budgets_of(own_room(), plan.memory);
    return plan;
  }

  InferencePlan plan(const InferenceOptions& given) const {
    InferencePlan plan = tried(given);
    if (!plan.memory.fits(plan.budgets)) refuse(plan.options, plan.memory.bytes, plan.budgets);
    return plan;
  }

 private:
  static bool chosen(const InferenceOptions& options) { return options.choose.params || options.choose.prefetch; }
  const RankRoom& own_room() const { return rooms_.at(static_cast<std::size_t>(ranks_.rank)); }

  // Without drafts, with less on its way, with a placement, and then with narrower weights: the first that fits.
  std::string way_out(InferenceOptions refused) const {
    std::string flags;
    if (refused.drafts != Drafts::none) {
      refused.drafts = Drafts::none;
      flags = "--speculate off ";
      if (fits(refused)) return fmt::format("; {}fits", flags);
    }
    std::vector<InferenceOptions> tries;
    const auto also_try = [&](bool places_weights) -> InferenceOptions& {
      tries.push_back(refused);
      tries.back().choose = {.params = places_weights, .prefetch = true};
      tries.back().prefetch_bytes = EngineOptions{}.prefetch_bytes;
      return tries.back();
    };
    if (!refused.choose.params && !refused.params.on_device()) also_try(false);  // less on its way
    if (!refused.choose.params) also_try(true);
    if (refused.dtype == DType::f32) also_try(true).dtype = DType::bf16;
    for (const WeightCodec& codec : kWeightCodecs)
      if (codec.type > refused.weights) also_try(true).weights = codec.type;
    for (const InferenceOptions& tried : tries) {
      const PlacementSearch::Result found = search(tried);
      if (!found.fits) continue;
      if (tried.dtype != refused.dtype) flags += "--dtype bf16 ";
      return fmt::format("; {}{} fits", flags, placement_flags(with(tried, found.arrangement)));
    }
    also_try(true);
    if (const auto enough = larger_budgets(tries.back())) return fmt::format("; {}{} fits", flags, *enough);
    return refused.nvme_paths.empty() ? "; raise --memory, ask for fewer tokens at a time, or add --nvme-path"
                                      : "; raise --memory, or ask for fewer tokens at a time";
  }

  // The placement that needs least of the device, with budgets that are large enough for it. Nothing where a machine
  // has no more.
  std::optional<std::string> larger_budgets(InferenceOptions options) const {
    options = with(options, search(options).arrangement);
    options.choose = {};
    constexpr int kRounds = 4;  // buffers grow with the host's budget
    for (int round = 0; round < kRounds; ++round) {
      const PlaceBytes bytes = memory(options).bytes;
      std::vector<RankRoom> rooms = rooms_;
      for (RankRoom& room : rooms) {
        give(room, whole_mebibytes(bytes[0]), whole_mebibytes(bytes[1]));
        if (!has_what_is_given(room)) return std::nullopt;
        options.device_bytes = room.device_option;
        options.host_bytes = room.host_option;
      }
      if (Planner(config_, ranks_, rooms, work_).fits(options))
        return fmt::format("{} --memory device={}MiB,host={}MiB", placement_flags(options), options.device_bytes >> 20,
                           options.host_bytes >> 20);
    }
    return std::nullopt;
  }

  [[noreturn]] void refuse(const InferenceOptions& options, const PlaceBytes& bytes, const PlaceBytes& budgets) const {
    std::string needs;
    for (const Place place : kPlaces) {
      const auto i = static_cast<std::size_t>(place);
      if (bytes[i] > budgets[i])
        needs += fmt::format("{}{} of {} memory, and the budget is {}", needs.empty() ? "" : "; ",
                             format_size(bytes[i]), name_of(place), format_size(budgets[i]));
    }
    throw Error("{}: with {} it needs {}{}", options.command, placement_flags(options), needs, way_out(options));
  }

  const ModelConfig& config_;
  const RankShape& ranks_;
  const std::vector<RankRoom>& rooms_;
  const InferenceWork& work_;
};

Session::Options session_options(const InferencePlan& plan, const GpuPlace& place, int ranks_on_node) {
  const InferenceOptions& options = plan.options;
  // A GPU's memory, and pinned memory, are taken at once: as much as the plan says. Files too.
  const PlaceBytes& bytes = options.backend == Backend::cuda ? plan.memory.bytes : plan.budgets;
  LowerTiers::Options lower = lower_options(options);
  lower.host_bytes = std::max<std::int64_t>(1, bytes[static_cast<std::size_t>(Place::host)]);
  lower.nvme_bytes = plan.memory.bytes[static_cast<std::size_t>(Place::nvme)];
  return {.backend = options.backend,
          .gpu = place.gpu,
          .batch_invariant = options.batch_invariant ? BatchInvariant::yes : BatchInvariant::no,
          .threads = options.threads,
          .device_bytes = bytes[static_cast<std::size_t>(Place::device)],
          .ranks_on_node = ranks_on_node,
          .lower = lower,
          .timeline = options.timeline};
}

// Drafting pays where a link is known to be slow: a simulated one, or a GPU's, whose tokens must not depend on what is
// in a pass then.
bool may_pay(const InferenceOptions& options, const RankShape& ranks) {
  const bool fetches = !options.params.on_device() || options.choose.params || ranks.ranks > 1;
  const bool simulated = options.link_bytes_per_second > 0 || options.nvme_bytes_per_second > 0;
  return fetches && (simulated || (options.backend == Backend::cuda && options.batch_invariant));
}

// What may become of the wish to draft, the best first. In host memory a draft pays beside weights in files.
std::vector<InferenceOptions> ways_to_draft(const InferenceOptions& options, const RankShape& ranks) {
  std::vector<InferenceOptions> ways(1, options);
  if (options.drafts == Drafts::none) return ways;
  const bool wanted = options.drafts == Drafts::wanted;
  if (!wanted && !may_pay(options, ranks)) {
    ways[0].drafts = Drafts::none;
    return ways;
  }
  if (wanted || options.params.in_files()) {
    ways.push_back(options);
    ways.back().draft_place = Place::host;
  }
  if (!wanted) {
    ways.push_back(options);
    ways.back().drafts = Drafts::none;
  }
  return ways;
}

// The first work that fits on this rank, in any of these ways; the last where none does.
std::size_t first_that_fits(const std::vector<InferenceOptions>& ways, const ModelConfig& config,
                            const RankShape& ranks, const std::vector<RankRoom>& rooms,
                            const std::vector<InferenceWork>& works) {
  const auto fits = [&](const InferenceWork& work) {
    const Planner planner(config, ranks, rooms, work);
    return std::ranges::any_of(ways, [&](const InferenceOptions& way) { return planner.fits(way); });
  };
  std::size_t i = 0;
  while (i + 1 < works.size() && !fits(works[i])) ++i;
  return i;
}

}  // namespace

void check(const InferenceOptions& options) {
  const auto refuse = [&](const std::string& what) { throw UsageError("{}: {}", options.command, what); };
  if (options.blocks_per_unit < 1)
    refuse(fmt::format("--blocks-per-unit {}: must be at least 1", options.blocks_per_unit));
  if (options.params.in_files() && options.nvme_paths.empty())
    refuse("--offload-param nvme: name a directory on a fast disk with --nvme-path");
  if (options.cache == CachePolicy::lru && options.params.on_device() && !options.choose.params)
    refuse("--cache-policy lru: is for offloaded weights; add --offload-param or --placement auto");
}

std::string placement_flags(const InferenceOptions& options) {
  std::string flags = fmt::format("--offload-param {}", text_of(options.params));
  if (options.cache == CachePolicy::lru && !options.params.on_device()) flags += " --cache-policy lru";
  if (options.copy_weights) flags += " --copy-weights";
  if (options.kv == Place::host) flags += " --offload-kv host";
  if (options.kv_int8) flags += " --kv-dtype int8";
  if (options.weights != CodedType::same) flags += fmt::format(" --weights-dtype {}", name_of(options.weights));
  return flags + fmt::format(" --prefetch {}", options.prefetch_bytes);
}

MemoryPlan dry_inference(const InferenceOptions& options, const ModelConfig& config, const RankShape& ranks,
                         const InferenceWork& work, SimulatedTime* time) {
  AbsentRanks absent(ranks);
  const auto model = make_model(config);
  Session session = Session::dry(absent, lower_options(options), options.backend, time);
  {
    ModelEngine engine(*model, session.communicator(), engine_options(options, ranks));
    if (options.drafts != Drafts::none) engine.keep_draft(kDraftType, options.draft_place);
    engine.load(random_weights(0));
    session.restart_peaks();
    work(engine, *model);
  }
  return used_by(session);
}

InferencePlan plan_inference(const InferenceOptions& options, const ModelConfig& config, const RankShape& ranks,
                             const std::vector<RankRoom>& rooms, const InferenceWork& work) {
  return Planner(config, ranks, rooms, work).plan(options);
}

InferencePlan try_inference(const InferenceOptions& options, const ModelConfig& config, const RankShape& ranks,
                            const std::vector<RankRoom>& rooms, const InferenceWork& work) {
  return Planner(config, ranks, rooms, work).tried(options);
}

Inference::Inference(const InferenceOptions& asked, Communicator& communicator, const std::vector<InferenceWork>& works)
    : config_(load_config(asked.model)) {
  const WeightFiles files(asked.model);  // what is wrong with them is said first
  InferenceOptions options = asked;
  if (!options.copy_weights && !options.nvme_paths.empty())
    options.in_files = weights_in_model_files(config_, files, options.dtype);
  const GpuPlace place = options.backend == Backend::cuda ? find_gpu(communicator) : GpuPlace{};
  const auto rooms = gather_rooms(communicator, room_of(tier_options(options), place, communicator.local_size()));
  const RankShape ranks = shape_of(communicator);
  const auto ways = ways_to_draft(options, ranks);
  if (works.size() > 1)
    planned_ = static_cast<std::size_t>(largest_over_ranks(
        communicator, static_cast<std::int32_t>(first_that_fits(ways, config_, ranks, rooms, works))));
  std::size_t way = 0;
  if (ways.size() > 1) {
    const Planner planner(config_, ranks, rooms, works[planned_]);
    while (way + 1 < ways.size() && !planner.fits(ways[way])) ++way;
    way = static_cast<std::size_t>(largest_over_ranks(communicator, static_cast<std::int32_t>(way)));
  }
  plan_ = plan_inference(ways[way], config_, ranks, rooms, works.at(planned_));
  check_agreement(communicator, {{"the placement", placement_flags(plan_.options)}});
  model_ = make_model(config_);
  session_ = std::make_unique<Session>(session_options(plan_, place, communicator.local_size()), communicator);
  engine_ = std::make_unique<ModelEngine>(*model_, session_->communicator(),
                                          engine_options(plan_.options, shape_of(communicator)));
  if (plan_.options.drafts != Drafts::none) engine_->keep_draft(kDraftType, plan_.options.draft_place);
  load(files, communicator);
  session_->restart_peaks();
}

void Inference::load(const WeightFiles& files, Communicator& communicator) {
  const InferenceOptions& options = plan_.options;
  const WeightSource source = stored_weights(config_, engine_->slices(), files);
  const auto codes = [&](CodedType type) -> CodedSource {
    if (type == CodedType::same || options.cache_directory.empty()) return {};
    CpuStream stream(*session_->pool());
    return cached_codes(options.command, options.cache_directory, files, type, engine_->units(), source, stream,
                        communicator);
  };
  engine_->load(source, nullptr, codes(options.weights));
  if (options.drafts != Drafts::none) engine_->load_draft(source, codes(kDraftType));
}

}  // namespace zeepo
