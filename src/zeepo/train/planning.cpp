// The trainer's plan of memory: what a step needs of each tier, whether it fits, and what to place where so that it
// does.
#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/machine.h"
#include "zeepo/base/size.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/nn/layers.h"
#include "zeepo/train/trainer.h"
#include "zeepo/zero/agreement.h"

namespace zeepo {
namespace {

std::int64_t free_bytes_in(const std::filesystem::path& path) {
  std::error_code code;
  const auto space = std::filesystem::space(path, code);
  if (code) throw Error("train: --nvme-path {}: cannot tell how much is free: {}", path.string(), code.message());
  return static_cast<std::int64_t>(space.available);
}

// In whole MiB, so that it is short and enough.
std::string budget_option(Place place, std::int64_t bytes) {
  return fmt::format("--memory {}={}MiB", name_of(place), (bytes + (1 << 20) - 1) >> 20);
}

// All ranks choose the same: within the smallest budget that any of them has.
PlaceBytes least_of(Communicator& communicator, PlaceBytes budgets) {
  const auto own = fmt::format("{}", fmt::join(budgets, " "));
  for (const auto& text : gather_texts(communicator, own)) {
    std::istringstream numbers(text);
    for (std::int64_t& budget : budgets) {
      std::int64_t theirs = 0;
      numbers >> theirs;
      budget = std::min(budget, theirs);
    }
  }
  return budgets;
}

}  // namespace

Trainer::Plan Trainer::plan_memory() {
  Session session = Session::dry(communicator_, lower_options(), options_.backend);
  EngineOptions options = engine_options();
  // The third is as the second, unless what is cached goes on from one to the next.
  if (options.placement.cache == CachePolicy::fixed)
    options.accumulation = std::min<std::int64_t>(options.accumulation, 2);
  {
    ModelEngine engine(*model_, session.communicator(), options);
    engine.load(random_weights(options_.seed));
    session.restart_peaks();
    const auto size = static_cast<std::size_t>(options_.micro_batch * options_.seq_len);
    const Batch blank{std::vector<std::int32_t>(size), std::vector<std::int32_t>(size)};
    const auto two_steps = [&] {  // the first is recorded; like all later ones, the second runs ahead
      for (int step = 1; step <= 2; ++step) {
        engine.expect_rate(0);
        for (std::int64_t m = 0; m < options.accumulation; ++m) micro_step(engine, blank, step, m);
        (void)engine.step(0);
      }
    };
    two_steps();
    for (std::size_t level = 1; level < range_.prefetch_bytes.size(); ++level) {
      engine.set_depths({range_.prefetch_bytes[level], options.pieces_under_way, options.host_share});
      two_steps();
    }
    engine.take_room_to_read();  // weights on their way out must fit too
  }
  Plan plan{};
  for (const Place place : kPlaces) {
    const auto i = static_cast<std::size_t>(place);
    plan.peak[i] = session.peak(place);
    plan.bytes[i] = static_cast<std::int64_t>(session.high_water(place));
  }
  return plan;
}

// The more of the optimizer's state can come up to the device ahead of its step, the better it hides behind the
// backward pass: the room that the plan leaves goes to it.
void Trainer::fill_device(Plan& plan) {
  const EngineOptions options = engine_options();
  if (options.step_below_on != StepSide::device || options.placement.optimizer.on_device()) return;
  const StateLayout layout{
      .dtype = options.dtype, .moments = state_count(options.optimizer), .moment_type = options.optimizer.moments};
  std::size_t piece = whole_pages(layout.bytes(options.piece_elements));
  if (!options.placement.params.on_device())
    piece += whole_pages(static_cast<std::size_t>(options.piece_elements) * size_of(options.dtype));
  const std::int64_t room = budgets(plan)[0] - plan.bytes[0];
  const std::int64_t more = room / static_cast<std::int64_t>(piece);
  if (more <= 0) return;
  pieces_under_way_ += static_cast<int>(std::min<std::int64_t>(more, std::numeric_limits<int>::max() / 2));
  range_.pieces_under_way = {pieces_under_way_};
  plan = plan_memory();
}

// Each level is taken as long as the budgets have room for it and it needs room: the memory is there when the run
// turns to it, whether it does or not. Of the host's, buffers get a quarter at most.
void Trainer::plan_tuning(Plan& plan) {
  constexpr int kMostTimes = 8;
  range_.prefetch_bytes = {options_.prefetch_bytes};
  range_.pieces_under_way = {pieces_under_way_};
  if (!step_rates_) range_.host_shares = {engine_options().host_share};
  const PlaceBytes budgets = least_of(communicator_, this->budgets(plan));
  const auto extend = [&](auto& levels, const auto& apply, const auto& modest) {
    for (auto level = levels[0] * 2; level <= levels[0] * kMostTimes; level *= 2) {
      levels.push_back(level);
      apply();
      const Plan deeper = plan_memory();
      bool fits = modest(deeper), differs = false;
      for (const Place place : kPlaces) {
        const auto i = static_cast<std::size_t>(place);
        fits = fits && deeper.bytes[i] <= budgets[i];
        differs = differs || deeper.peak[i].total != plan.peak[i].total;
      }
      if (!fits || !differs) {
        levels.pop_back();
        return apply();
      }
      plan = deeper;
    }
  };
  if (options_.tune.prefetch && options_.prefetch_bytes > 0)
    extend(
        range_.prefetch_bytes, [] {}, [](const Plan&) { return true; });
  if (options_.tune.pieces && engine_options().step_below_on == StepSide::host)
    extend(
        range_.pieces_under_way, [this] { pieces_under_way_ = range_.pieces_under_way.back(); },
        [&](const Plan& deeper) { return deeper.peak[1][Kind::working] <= budgets[1] / 4; });
}

// Of a GPU that other ranks may share: what was free before any rank took some.
std::int64_t Trainer::device_bytes_to_use() const {
  if (options_.backend == Backend::cuda && options_.device_bytes == 0) return gpu_budget(place_.free_bytes);
  return device_budget(options_.backend, place_.gpu, options_.device_bytes, communicator_.local_size());
}

// Of each tier.
PlaceBytes Trainer::budgets(const Plan& plan) const {
  if (filled_) return *filled_;
  const int ranks = communicator_.local_size();
  return {device_bytes_to_use(), options_.host_bytes > 0 ? options_.host_bytes : usable_memory_bytes() / ranks,
          options_.nvme_bytes > 0 ? options_.nvme_bytes : plan.bytes[static_cast<std::size_t>(Place::nvme)]};
}

void Trainer::check_fits(const Plan& plan, const PlaceBytes& budgets) const {
  constexpr std::array kWaysOut{
      "lower --micro-batch or --seq-len, try --activation-checkpointing or --tile-linear, or move states away with "
      "--placement auto, --offload-optimizer, --offload-param or --offload-activations",
      "move states on to files with --placement auto, --offload-optimizer nvme, --offload-param nvme or "
      "--offload-activations nvme, or raise --memory host=",
      "give --nvme-path a larger disk, or raise --memory nvme="};
  for (const Place place : kPlaces) {
    const auto i = static_cast<std::size_t>(place);
    if (plan.bytes[i] <= budgets[i]) continue;
    throw Error("train: a step needs {} of {} memory ({}), {} more than the budget of {}{}; {}",
                format_size(plan.bytes[i]), name_of(place), describe(plan.peak[i]),
                format_size(plan.bytes[i] - budgets[i]), format_size(budgets[i]), what_is_free(place), kWaysOut[i]);
  }
}

// Where the budget is what was free of a GPU, others may hold the rest.
std::string Trainer::what_is_free(Place place) const {
  if (place != Place::device || options_.backend != Backend::cuda || options_.device_bytes > 0) return {};
  return fmt::format(" ({} of GPU {}'s {} were free{}; nvidia-smi shows what else runs on it)",
                     format_size(static_cast<std::int64_t>(place_.free_bytes) * place_.ranks), place_.gpu,
                     format_size(static_cast<std::int64_t>(place_.all_bytes)),
                     place_.ranks > 1 ? fmt::format(" for {} ranks", place_.ranks) : "");
}

// What --placement auto may fill on this rank.
PlaceBytes Trainer::budgets_to_fill() const {
  const int ranks = communicator_.local_size();
  std::int64_t device = device_bytes_to_use();
  std::int64_t host = options_.host_bytes;
  const bool one_memory = options_.backend == Backend::cpu;
  if (host == 0 && one_memory && options_.device_bytes == 0) {
    host = device / 8;
    device -= host;
  } else if (host == 0) {
    const std::int64_t free_bytes = free_memory_bytes() / ranks;
    host = free_bytes - free_bytes / 10;  // for the program itself, and others
    if (one_memory) host = std::max<std::int64_t>(0, host - device);
  }
  std::int64_t nvme = options_.nvme_paths.empty() ? 0 : options_.nvme_bytes;
  if (nvme == 0 && !options_.nvme_paths.empty()) {
    nvme = std::numeric_limits<std::int64_t>::max();
    for (const auto& path : options_.nvme_paths) nvme = std::min(nvme, free_bytes_in(path));
    nvme = nvme / ranks * static_cast<std::int64_t>(options_.nvme_paths.size());  // striped evenly
  }
  return {device, host, nvme};
}

Arrangement Trainer::arrangement() const {
  return {options_.placement, options_.activation_checkpointing, options_.prefetch_bytes};
}

Trainer::Plan Trainer::plan_of(const Arrangement& arrangement) {
  options_.placement = arrangement.placement;
  options_.activation_checkpointing = arrangement.activation_checkpointing;
  options_.prefetch_bytes = arrangement.prefetch_bytes;
  return plan_memory();
}

Trainer::Plan Trainer::choose_placement() {
  filled_ = least_of(communicator_, budgets_to_fill());
  const PlacementSearch search{
      .given = arrangement(), .open = options_.choose, .budgets = *filled_, .plan = [this](const Arrangement& tried) {
        return plan_of(tried).bytes;
      }};
  const PlacementSearch::Result result = search.run();
  if (!result.fits) throw Error("train: --placement auto: {}", ways_out(search, result));
  Plan plan = plan_of(result.arrangement);
  check_agreement(communicator_, {{"the placement chosen", flags_of(result.arrangement)}});
  return plan;
}

// What is missing when all that may leave has left, and what would help: each way out has been tried.
std::string Trainer::ways_out(const PlacementSearch& search, const PlacementSearch::Result& failed) {
  std::string text = "a step does not fit: with all that may leave the device below it (";
  text += flags_of(failed.arrangement) + ") it needs";
  for (const Place place : kPlaces) {
    const auto i = static_cast<std::size_t>(place);
    if (failed.bytes[i] == 0) continue;
    text += fmt::format(" {}={} of {},", name_of(place), format_size(failed.bytes[i]), format_size(search.budgets[i]));
  }
  text.back() = '.';
  if (failed.bytes[0] > search.budgets[0])
    text += fmt::format(" For the device: {}.", fmt::join(ways_for_device(search, failed), ", or "));

  // Below it, with a device that is large enough.
  PlacementSearch below = search;
  below.budgets[0] = std::max(search.budgets[0], failed.bytes[0]);
  if (below.run().fits) return text;
  std::vector<std::string> ways;
  constexpr std::int64_t kEndless = std::int64_t{1} << 60;
  for (const Place place : {Place::host, Place::nvme}) {
    const auto i = static_cast<std::size_t>(place);
    PlacementSearch larger = below;
    larger.budgets[i] = kEndless;
    if (place == Place::nvme) options_.nvme_paths.emplace_back();  // as if there was one
    const auto result = larger.run();
    if (place == Place::nvme) options_.nvme_paths.pop_back();
    if (!result.fits) continue;
    ways.push_back(place == Place::nvme && options_.nvme_paths.empty()
                       ? fmt::format("--nvme-path DIR with {} free", format_size(result.bytes[i]))
                       : budget_option(place, result.bytes[i]));
  }
  if (ways.empty()) ways.emplace_back("larger budgets of the host and of files, --memory host=,nvme=");
  return text + fmt::format(" Below the device: {}.", fmt::join(ways, ", or "));
}

std::vector<std::string> Trainer::ways_for_device(const PlacementSearch& search,
                                                  const PlacementSearch::Result& failed) {
  std::vector<std::string> ways{budget_option(Place::device, failed.bytes[0])};
  const auto fits = [&](const Arrangement& arrangement) { return search.plan(arrangement)[0] <= search.budgets[0]; };
  if (options_.micro_batch > 1) {
    const auto given = std::exchange(options_.micro_batch, 1);
    if (fits(failed.arrangement))
      ways.push_back(fmt::format("--micro-batch 1 --grad-accum {}", given * options_.grad_accum));
    options_.micro_batch = given;
  }
  const std::int64_t most_tiles = options_.products == Products::fp8 ? 0 : 16;  // these cannot be cut
  for (std::int64_t tiles = 2 * options_.linear_tiles; tiles <= most_tiles; tiles *= 2) {
    auto given = std::exchange(model_, make_model(config_));
    tile_linears(*model_, tiles);
    const bool enough = fits(failed.arrangement);
    model_ = std::move(given);
    if (!enough) continue;
    ways.push_back(fmt::format("--tile-linear {}", tiles));
    break;
  }
  std::vector<std::string> fixed;
  const OpenChoices& open = search.open;
  if (!open.optimizer) fixed.emplace_back("--offload-optimizer");
  if (!open.params) fixed.emplace_back("--offload-param");
  if (!open.activations) fixed.emplace_back("--offload-activations");
  if (!open.prefetch) fixed.emplace_back("--prefetch");
  if (!fixed.empty()) {
    PlacementSearch all = search;
    all.open = {.params = true, .optimizer = true, .activations = true, .prefetch = true};
    if (all.run().bytes[0] <= search.budgets[0])
      ways.push_back(fmt::format("leave {} to be chosen too", fmt::join(fixed, ", ")));
  }
  if (ways.size() == 1 && options_.seq_len > 1) {
    const auto given = std::exchange(options_.seq_len, options_.seq_len / 2);
    if (fits(failed.arrangement)) ways.push_back(fmt::format("--seq-len {}", options_.seq_len));
    options_.seq_len = given;
  }
  return ways;
}

}  // namespace zeepo
