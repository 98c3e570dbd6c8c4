#include "zeepo/train/resume.h"

#include <algorithm>
#include <sstream>

#include "zeepo/base/error.h"
#include "zeepo/checkpoint/checkpoint_directory.h"
#include "zeepo/train/checkpointing.h"
#include "zeepo/train/option_table.h"
#include "zeepo/zero/agreement.h"

namespace zeepo {
namespace {

// The options as they were saved. What this program does not know, or no longer takes, is listed in `unknown`.
TrainOptions saved_options(const Manifest& manifest, std::vector<std::string>& unknown) {
  TrainOptions options;
  for (const auto& [name, text] : manifest.options) {
    const TrainOption* option = find_option(name);
    try {
      if (!option) throw UsageError("not an option");
      option->parse(options, text);
    } catch (const UsageError& error) {
      unknown.push_back(fmt::format("{} {}: saved, and not known to this program ({})", name, text, error.what()));
    }
  }
  return options;
}

std::string shown_value(const std::string& text) { return text.empty() ? "(none)" : text; }

// Every rank's failure: empty where all are well.
std::string failure_of_any(Communicator& communicator, const std::string& own) {
  const auto all = gather_texts(communicator, own);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty()) return all.size() == 1 ? all[rank] : fmt::format("rank {}: {}", rank, all[rank]);
  return "";
}

std::string joined(const std::vector<std::string>& lines) { return fmt::format("{}", fmt::join(lines, "; ")); }

// Of two checks of options: what must not be passed over by taking an older checkpoint.
struct Refused : Error {
  using Error::Error;
};

class Loader {
 public:
  Loader(const RunSetup& setup, const std::map<std::string, std::string>& origin, ModelEngine& engine,
         Communicator& communicator, RunReport& report)
      : setup_(setup), origin_(origin), engine_(engine), communicator_(communicator), report_(report) {}

  // Throws Error, on all ranks, when the checkpoint is damaged; Refused when it must not be loaded.
  ResumePoint load(const std::filesystem::path& path) {
    std::string failure;
    std::optional<Checkpoint> checkpoint;
    attempt(failure, [&] { checkpoint.emplace(path); });
    share(failure);
    check_changes(*checkpoint);
    const SavedState saved{[&](std::size_t moment, const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
                             read(*checkpoint, slice, moment + 1, begin, out, failure);
                           },
                           checkpoint->manifest().progress};
    engine_.load([&](const WeightSlice& slice, std::int64_t begin,
                     std::span<float> out) { read(*checkpoint, slice, 0, begin, out, failure); },
                 &saved);
    engine_.settle();
    if (failure.empty() && communicator_.rank() == 0) attempt(failure, [&] { checkpoint->verify_model_files(); });
    share(failure);
    const Manifest& manifest = checkpoint->manifest();
    check_end(*checkpoint);
    report_.resumed(manifest.step, path, changes_);
    return {manifest.step, manifest.samples, manifest.loss, manifest.depths, manifest.best, {}};
  }

 private:
  template <class F>
  static void attempt(std::string& failure, const F& f) {
    try {
      f();
    } catch (const Error& error) {
      failure = error.what();
    }
  }

  // A rank that cannot read goes on with zeros: loading is a collective, and all ranks are told after it.
  static void read(Checkpoint& checkpoint, const WeightSlice& slice, std::size_t kind, std::int64_t begin,
                   std::span<float> out, std::string& failure) {
    std::ranges::fill(out, 0.0f);
    if (!failure.empty()) return;
    attempt(failure, [&] { checkpoint.read(slice.name, kind, begin, out); });
  }

  void share(const std::string& failure) {
    if (const std::string any = failure_of_any(communicator_, failure); !any.empty()) throw Error("{}", any);
  }

  void check_changes(const Checkpoint& checkpoint) {
    const auto [of_result, of_execution] = changes_since(checkpoint.manifest(), setup_, origin_);
    if (!of_result.empty() && !setup_.options.resume.allow_changes)
      throw Refused(
          "--resume {}: options that change the result are not those of the checkpoint: {}. Give the same, or "
          "add --allow-changes",
          checkpoint.path().string(), joined(of_result));
    std::vector<std::string> slices;
    for (const WeightSlice& slice : engine_.slices()) slices.push_back(slice.name);
    std::vector<std::string> saved;
    for (const auto& weight : checkpoint.manifest().weights) saved.push_back(weight.name);
    if (slices != saved)
      throw Refused("--resume {}: a checkpoint of another model: it has {} weights, and --model has {}",
                    checkpoint.path().string(), saved.size(), slices.size());
    changes_ = of_result;
    changes_.insert(changes_.end(), of_execution.begin(), of_execution.end());
  }

  // Of a whole one: its weights are not those that --steps asks for.
  void check_end(const Checkpoint& checkpoint) const {
    const std::int64_t step = checkpoint.manifest().step, last = setup_.options.steps;
    if (step > last)
      throw Refused("--resume {}: a checkpoint of step {}, and --steps {} ends before it; give --steps {} or more",
                    checkpoint.path().string(), step, last, step);
  }

  const RunSetup& setup_;
  const std::map<std::string, std::string>& origin_;
  ModelEngine& engine_;
  Communicator& communicator_;
  RunReport& report_;
  std::vector<std::string> changes_;
};

// Rank 0's view of the directory, for all ranks.
std::vector<std::filesystem::path> candidates(const std::filesystem::path& directory, Communicator& communicator) {
  std::string own, failure;
  if (communicator.rank() == 0) try {
      for (const auto& entry : list_checkpoints(directory)) own += entry.path.filename().string() + "\n";
    } catch (const Error& error) {
      failure = error.what();
    }
  if (const std::string any = failure_of_any(communicator, failure); !any.empty()) throw Error("{}", any);
  std::string names = gather_texts(communicator, own)[0];
  std::vector<std::filesystem::path> paths;
  for (std::size_t at = 0, end = 0; (end = names.find('\n', at)) != std::string::npos; at = end + 1)
    paths.push_back(directory / names.substr(at, end - at));
  std::ranges::reverse(paths);  // the newest first
  return paths;
}

// How many rows of a micro-step each rank computes.
std::vector<std::int64_t> rows_of_ranks(const std::vector<std::int64_t>& shares, int ranks, std::int64_t micro_batch) {
  return shares.empty() ? std::vector(static_cast<std::size_t>(ranks), micro_batch) : shares;
}

bool alike(const std::vector<std::int64_t>& rows) { return std::ranges::count(rows, rows[0]) == std::ssize(rows); }

// Of options that leave the one order of sums (docs/numerics.md): what depends on the ranks and where they are.
std::vector<std::string> changes_of_sums(const Manifest& manifest, const TrainOptions& before, const RunSetup& setup) {
  std::vector<std::string> lines;
  const TrainOptions& now = setup.options;
  const int were = manifest.ranks, are = setup.ranks.ranks;
  const auto tell = [&](const std::string& option, const std::string& why) {
    lines.push_back(fmt::format("{} on {} ranks, now {}: {}", option, were, are, why));
  };
  const bool either_alone = (were == 1) != (are == 1), several = were > 1 && are > 1;
  if (before.reduce == Reduce::last && now.reduce == Reduce::last && were != are)
    tell("--reduce last", "each rank has a sum of its own");
  if (before.sum_order == SumOrder::local && now.sum_order == SumOrder::local && either_alone)
    tell("--sum-order local", "a rank alone sums in another order");
  if (before.wire.gather != WireType::same && now.wire.gather != WireType::same && either_alone)
    tell(fmt::format("--gather-dtype {}", name_of(now.wire.gather)), "a rank alone computes with exact weights");
  if (before.wire.reduce != WireType::same && now.wire.reduce != WireType::same) {
    const std::string option = fmt::format("--reduce-dtype {}", name_of(now.wire.reduce));
    if (were != are)
      tell(option, "the codes are of each rank's gradients");
    else if (several && manifest.nodes != nodes_of(setup))
      lines.push_back(fmt::format("{} on nodes {}, now {}: the codes are of each node's sums", option,
                                  fmt::join(manifest.nodes, ","), fmt::join(nodes_of(setup), ",")));
    if (before.wire.feedback && now.wire.feedback && several)
      lines.push_back("--reduce-feedback: what the codes had lost of the last gradients is not in a checkpoint");
  }
  const auto rows_before = rows_of_ranks(manifest.balance.rows, were, before.micro_batch);
  const auto rows = rows_of_ranks(setup.balanced.rows, are, now.micro_batch);
  if (rows_before != rows && !(alike(rows_before) && alike(rows)))
    lines.push_back(fmt::format("--balance: {} rows of a micro-step on the ranks, now {}", fmt::join(rows_before, ", "),
                                fmt::join(rows, ", ")));
  return lines;
}

// For rank 0.
std::vector<double> speeds_in(const std::filesystem::path& path, int ranks) {
  const Manifest manifest = read_manifest(path);
  const auto balance = manifest.options.find("--balance");
  if (balance == manifest.options.end() || balance->second != "auto") return {};
  if (manifest.balance.speeds.size() != static_cast<std::size_t>(ranks)) return {};
  return manifest.balance.speeds;
}

}  // namespace

OptionChanges changes_since(const Manifest& manifest, const RunSetup& setup,
                            const std::map<std::string, std::string>& origin) {
  OptionChanges changes;
  const TrainOptions& now = setup.options;
  const TrainOptions before = saved_options(manifest, changes.of_result);
  const std::int64_t saved_batches = before.grad_accum * manifest.ranks, batches = now.grad_accum * setup.ranks.ranks;
  if (saved_batches != batches)
    changes.of_result.push_back(
        fmt::format("{} micro-batches a step (ranks x --grad-accum), now {}", saved_batches, batches));
  const bool constant = before.schedule.type == ScheduleType::constant && now.schedule.type == ScheduleType::constant;
  for (const auto& [option, was, is] : differences(before, now)) {
    if (option->group == OptionGroup::checkpoint || option->group == OptionGroup::report) continue;
    const std::string line = fmt::format("{} {}, now {}", option->name, shown_value(was), shown_value(is));
    const bool harmless = option->effect == Effect::execution || option->ranks == Ranks::agree_in_contents ||
                          (option->name == "--grad-accum" && saved_batches == batches) ||
                          (option->name == "--steps" && constant) || option->name == "--from-scratch";
    (harmless ? changes.of_execution : changes.of_result).push_back(line);
  }
  for (const auto& [what, sum] : origin)
    if (const auto found = manifest.origin.find(what); found == manifest.origin.end() || found->second != sum)
      changes.of_result.push_back(fmt::format("{}: not the same", what));
  for (std::string& line : changes_of_sums(manifest, before, setup)) changes.of_result.push_back(std::move(line));
  if (manifest.ranks != setup.ranks.ranks)
    changes.of_execution.push_back(fmt::format("{} ranks, now {}", manifest.ranks, setup.ranks.ranks));
  return changes;
}

std::vector<double> saved_speeds(const RunSetup& setup, Communicator& communicator) {
  const TrainOptions& options = setup.options;
  if (!options.resume.wanted || !options.balance.wanted || !options.balance.speeds.empty()) return {};
  std::vector<std::filesystem::path> paths{options.resume.from};
  if (options.resume.from.empty()) paths = candidates(options.checkpoint_dir, communicator);
  std::string own;
  if (communicator.rank() == 0)
    for (const auto& path : paths) try {
        own = fmt::format("{}", fmt::join(speeds_in(path, setup.ranks.ranks), " "));
        break;
      } catch (const Error&) {
        continue;  // loading tells of it
      }
  std::istringstream text(gather_texts(communicator, own)[0]);
  std::vector<double> speeds;
  for (double speed = 0; text >> speed;) speeds.push_back(speed);
  return speeds;
}

std::optional<ResumePoint> resume_run(const RunSetup& setup, const std::map<std::string, std::string>& origin,
                                      ModelEngine& engine, Communicator& communicator, RunReport& report) {
  const TrainOptions& options = setup.options;
  Loader loader(setup, origin, engine, communicator, report);
  if (!options.resume.from.empty()) return loader.load(options.resume.from);
  const auto paths = candidates(options.checkpoint_dir, communicator);
  std::set<std::filesystem::path> damaged;
  for (const auto& path : paths) try {
      ResumePoint point = loader.load(path);
      point.damaged = std::move(damaged);
      return point;
    } catch (const Refused&) {
      throw;
    } catch (const Error& error) {
      damaged.insert(path.filename());
      report.fault(0, "checkpoint", fmt::format("a checkpoint is passed over: {}", error.what()));
    }
  if (!paths.empty())
    throw Error(
        "--resume: none of the {} checkpoints of {} is whole; name a model with --model and start anew in another "
        "directory, or bring back a copy",
        paths.size(), options.checkpoint_dir.string());
  report.starts_anew(options.checkpoint_dir);
  return std::nullopt;
}

}  // namespace zeepo
