#include "zeepo/train/model_saving.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"
#include "zeepo/zero/agreement.h"

namespace zeepo {
namespace {

constexpr std::chrono::seconds kLookAtRoom{60};
constexpr double kFirstPauseSeconds = 1;  // between two tries; each pause is twice as long as the one before

}  // namespace

ModelSaving::ModelSaving(const TrainOptions& options, const std::vector<ModelTensor>& tensors,
                         Communicator& communicator, FreeBytes free_bytes)
    : options_(options),
      tensors_(tensors),
      communicator_(communicator),
      free_bytes_(std::move(free_bytes)),
      directory_{.dtype = options.output_dtype.value_or(options.dtype)} {
  if (!wanted()) return;
  places_.push_back({"--output", options.output});
  if (!options.output_fallback.empty()) places_.push_back({"--output-fallback", options.output_fallback});
  if (writes()) bytes_ = model_directory_bytes(options.model, tensors, directory_);
}

void ModelSaving::check_places() const {
  if (!writes()) return;
  for (const Place& place : places_) {
    try {
      check_model_target(place.path, tensors_, directory_);
    } catch (const Error& fault) {
      throw Error("train: {} {}: {}", place.option, place.path.string(), fault.what());
    }
    if (const std::string lacking = lacking_room(place); !lacking.empty()) throw Error("train: {}", lacking);
  }
}

std::string ModelSaving::lacking_room(const Place& place) const {
  const auto available = free_bytes_(place.path);
  if (!available || *available >= bytes_) return {};
  return fmt::format("{} {}: the model takes {} and {} are free there; make room or choose another place", place.option,
                     place.path.string(), format_size(bytes_), format_size(*available));
}

void ModelSaving::watch_room(std::int64_t step, RunReport& report) {
  if (!writes() || !wanted()) return;
  if (step + 1 != options_.steps && Clock::now() - looked_at_ < kLookAtRoom) return;
  looked_at_ = Clock::now();
  const std::string lacking = lacking_room(places_.front());
  if (lacking.empty() == had_room_) return;
  had_room_ = lacking.empty();
  report.fault(step, "output", had_room_ ? "--output: there is room for the model again" : lacking);
}

ModelSaving::Writing ModelSaving::agree(Writing own) {
  if (communicator_.alone()) return own;
  return static_cast<Writing>(largest_over_ranks(communicator_, static_cast<std::int32_t>(own)));
}

void ModelSaving::save(ModelEngine& engine, std::int64_t step, RunReport& report) {
  WeightCheck check{directory_.dtype, fmt::format("train: after step {}", step),
                    "lower --lr, or use --output-dtype fp32; nothing is saved in --output"};
  std::string faults;
  try {
    for (const Place& place : places_) {
      const auto fault = save_in(place, engine, check, step, report);
      if (!fault) return;
      faults += (faults.empty() ? "" : "; ") + *fault;
    }
  } catch (const UnfitWeight& unfit) {
    if (!unfit.finite() || options_.output_fallback.empty()) throw;
    directory_.dtype = check.dtype = DType::f32;  // the work is not lost for a dtype
    if (const auto fault = save_in(places_.back(), engine, check, step, report))
      throw Error("{}; and in fp32: {}", unfit.what(), *fault);
    throw Error("{}; it is in {} in fp32", unfit.what(), options_.output_fallback.string());
  }
  throw Error("train: the trained model is not saved: {}", faults);
}

std::optional<std::string> ModelSaving::save_in(const Place& place, ModelEngine& engine, const WeightCheck& check,
                                                std::int64_t step, RunReport& report) {
  double left = options_.output_retry_seconds;
  for (double pause = kFirstPauseSeconds;; pause *= 2) {
    const auto fault = writes() ? try_to_write(place, engine, check) : join_reads(engine, check);
    if (!fault) {
      report.saved(place.path);
      return {};
    }
    const std::string next =
        place.path == places_.back().path ? std::string() : fmt::format(", then in {}", places_.back().path.string());
    if (left <= 0) {
      report.fault(step, "output", *fault + next);
      return fault;
    }
    pause = std::min(pause, left);
    report.fault(step, "output",
                 fmt::format("{}; the next try is in {:.3g} s, and the last in {:.3g} s{}. Make room there: the model "
                             "takes {}",
                             *fault, pause, left, next, format_size(bytes_)));
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));  // on all ranks alike
    left -= pause;
  }
}

std::optional<std::string> ModelSaving::try_to_write(const Place& place, ModelEngine& engine,
                                                     const WeightCheck& check) {
  std::exception_ptr other;  // no fault of the place: another try would not help
  const TensorReader read = [&](const std::string& name, std::int64_t begin, std::span<float> out) {
    try {
      agree();
      engine.read(name, begin, out);
      check(name, begin, out);
    } catch (...) {
      other = std::current_exception();
      throw;
    }
  };
  std::optional<std::string> fault;
  try {
    write_model_directory(options_.model, place.path, tensors_, read, directory_);
  } catch (const std::exception& error) {
    if (other) std::rethrow_exception(other);
    fault = error.what();
  }
  agree(fault ? Writing::has_failed : Writing::goes_on);
  return fault;
}

// The same reads as rank 0's.
std::optional<std::string> ModelSaving::join_reads(ModelEngine& engine, const WeightCheck& check) {
  constexpr const char* kFault = "rank 0 cannot save the model";
  std::vector<float> piece;
  for (const auto& shard : cut_into_shards(tensors_, directory_.dtype, directory_.shard_bytes))
    for (const auto& [name, shape] : shard.tensors) {
      const std::int64_t elements = elements_of(name, shape);
      for (std::int64_t begin = 0; begin < elements; begin += kWritePieceElements) {
        if (agree() == Writing::has_failed) return kFault;
        piece.resize(static_cast<std::size_t>(std::min(elements - begin, kWritePieceElements)));
        engine.read(name, begin, piece);
        check(name, begin, piece);
      }
    }
  if (agree() == Writing::has_failed) return kFault;
  return {};
}

}  // namespace zeepo
