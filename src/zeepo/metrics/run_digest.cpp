#include "zeepo/metrics/run_digest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "zeepo/base/error.h"
#include "zeepo/metrics/event_numbers.h"
#include "zeepo/metrics/figure_text.h"

namespace zeepo {
namespace {

template <class T>
void raise(T& value, double other) {
  if (other > value) value = other;
}

// Not a number where there are none.
double median(std::vector<float> values) {
  if (values.empty()) return NAN;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

void RunDigest::Losses::add(std::int64_t step, const Event& event) {
  const double value = number_in(event, "loss");
  ++count;
  last = {step, value};
  all.push_back(*last);
  if (!first || step < first->step) first = last;
  if (!std::isfinite(value)) {
    ++not_finite;
  } else if (!best || value < best->value) {
    best = last;
  }
}

std::string RunDigest::Losses::text() const {
  std::string line = fmt::format("first {:.4f}, last {:.4f}", first->value, last->value);
  if (best) line += fmt::format(", best {:.4f} at step {}", best->value, best->step);
  if (not_finite > 0) line += fmt::format("; {} not a number", not_finite);
  return line;
}

std::string RunDigest::Happened::text(const char* one, const char* many) const {
  if (count == 0) return "";
  return fmt::format("{:<12}{} {}, the last {} step {}{}{}\n", many, count, count == 1 ? one : many,
                     one == std::string_view("resume") ? "behind" : "at", last_step, last_text.empty() ? "" : ": ",
                     last_text);
}

void RunDigest::take(const Event& event) {
  const std::string kind = kind_of(event);
  const auto happened = [&](Happened& what, const char* key) {
    ++what.count;
    what.last_step = step_of(event);
    what.last_text = text_in(event, key);
  };
  if (kind == "step") take_step(event);
  if (kind == "eval") evaluations_.add(step_of(event), event);
  if (kind == "plan") plan_ = event;
  if (kind == "summary") summary_ = event;
  if (kind == "plan" || kind == "resume") summary_ = nullptr;  // of another run in the same file
  if (kind == "checkpoint") happened(checkpoints_, "path");
  if (kind == "fault") happened(faults_, "message");
  if (kind == "resume") happened(resumes_, "path");
  if (kind == "stop") happened(stops_, "signal");
}

void RunDigest::take_step(const Event& event) {
  const std::int64_t step = step_of(event);
  first_step_ = steps_ == 0 ? step : std::min(first_step_, step);
  last_step_ = steps_ == 0 ? step : std::max(last_step_, step);
  ++steps_;
  losses_.add(step, event);
  for (const EventNumber& field : numbers_of(event, '/')) {
    const double value = field.number();
    if (!std::isfinite(value)) continue;
    if (field.name == "tokens") tokens_ += value;
    if (field.name == "seconds") {
      seconds_ += value;
      step_seconds_.push_back(static_cast<float>(value));
    }
    if (field.name == "tokens_per_second") tokens_per_second_.push_back(static_cast<float>(value));
    if (field.name.starts_with("stall_seconds/") && stalls_.size() < 16) stalls_[field.name.substr(14)] += value;
    if (!field.name.starts_with("memory/") || memory_.size() > 8) continue;
    const std::size_t slash = field.name.find('/', 7);
    if (slash == std::string::npos) continue;
    auto& tier = memory_[field.name.substr(7, slash - 7)];
    if (tier.size() < 16) raise(tier[field.name.substr(slash + 1)], value);
  }
}

std::string RunDigest::plan_text() const {
  if (plan_.is_null()) return "";
  std::string line = fmt::format("{:<12}", "model");
  line += fmt::format("{} parameters in {}", grouped(number_in(plan_, "params")), text_in(plan_, "dtype"));
  const double ranks = number_in(plan_, "world_size");
  if (std::isfinite(ranks)) line += fmt::format("; {} rank{}", ranks, ranks == 1 ? "" : "s");
  if (ranks > 1) line += fmt::format(", stage {}", number_in(plan_, "stage"));
  return line + "\n";
}

double RunDigest::median_speed() const { return median(tokens_per_second_); }

double RunDigest::median_seconds() const { return median(step_seconds_); }

std::string RunDigest::speed_text() const {
  std::string text = fmt::format("{:<12}{} tokens in {}", "speed", grouped(tokens_), duration_text(seconds_));
  if (const double median = median_speed(); std::isfinite(median))
    text += fmt::format("; median {} tokens/s", rate_text(median));
  return text + "\n";
}

std::string RunDigest::stall_text() const {
  if (stalls_.empty()) return "";
  double all = 0;
  std::string kinds;
  for (const auto& [name, seconds] : stalls_) {
    all += seconds;
    if (seconds > 0)
      kinds += fmt::format("{}{} {}", kinds.empty() ? ": " : ", ", text_in({{"name", name}}, "name"),
                           duration_text(seconds));
  }
  return fmt::format("{:<12}{:.1f}% of the time{}\n", "stalls", seconds_ > 0 ? 100 * all / seconds_ : 0.0, kinds);
}

std::string RunDigest::memory_text() const {
  std::string text;
  for (const auto& [tier, kinds] : memory_) {
    const auto total = kinds.find("total");
    if (total == kinds.end() || total->second <= 0) continue;
    std::string parts;
    for (const auto& [kind, bytes] : kinds)
      if (kind != "total" && bytes > 0)
        parts +=
            fmt::format("{}{} {}", parts.empty() ? ": " : ", ", text_in({{"name", kind}}, "name"), bytes_text(bytes));
    text += fmt::format("{:<12}{} {} at most{}\n", text.empty() ? "memory" : "", text_in({{"name", tier}}, "name"),
                        bytes_text(total->second), parts);
  }
  return text;
}

std::string RunDigest::end_text() const {
  if (!summary_.is_null()) return fmt::format("{:<12}finished; weights {}\n", "end", text_in(summary_, "weights_hash"));
  if (stops_.count > 0 && stops_.last_step >= last_step_)
    return fmt::format("{:<12}stopped by {} after step {}\n", "end", stops_.last_text, stops_.last_step);
  return fmt::format("{:<12}no summary: the run was killed, has failed, or goes on\n", "end");
}

std::string RunDigest::text() const {
  std::string text = plan_text();
  if (steps_ == 0) return text + fmt::format("{:<12}none\n", "steps") + faults_.text("fault", "faults") + end_text();
  text +=
      fmt::format("{:<12}{}, from {} to {}", "steps", grouped(static_cast<double>(steps_)), first_step_, last_step_);
  if (const double planned = plan_.is_null() ? NAN : number_in(plan_, "steps"); planned > 0)
    text += fmt::format(" of {}", grouped(planned));
  text += fmt::format("\n{:<12}{}\n", "loss", losses_.text());
  if (evaluations_.count > 0)
    text += fmt::format("{:<12}{}; {} evaluation{}\n", "eval loss", evaluations_.text(), evaluations_.count,
                        evaluations_.count == 1 ? "" : "s");
  text += speed_text() + stall_text() + memory_text();
  text += checkpoints_.text("checkpoint", "checkpoints") + resumes_.text("resume", "resumes") +
          faults_.text("fault", "faults");
  return text + end_text();
}

namespace {

// What `number` finds in the ranks of a summary, where it finds one.
template <class F>
std::vector<double> of_ranks(const Event& summary, const F& number) {
  std::vector<double> numbers;
  const auto ranks = summary.find("ranks");
  if (ranks == summary.end() || !ranks->is_array()) return numbers;
  for (const Event& rank : *ranks)
    if (const double found = number(rank); !std::isnan(found)) numbers.push_back(found);
  return numbers;
}

}  // namespace

double RunDigest::peak_bytes(const char* tier, const char* kind) const {
  const auto peaks = of_ranks(
      summary_, [&](const Event& rank) { return number_in(object_in(object_in(rank, "peak_bytes"), tier), kind); });
  if (!peaks.empty()) return std::ranges::max(peaks);
  const auto kinds = memory_.find(tier);
  if (kinds == memory_.end()) return NAN;
  const auto found = kinds->second.find(kind);
  return found == kinds->second.end() ? NAN : found->second;
}

double RunDigest::sent_by_ranks(const char* group, const char* name) const {
  const auto sent = of_ranks(summary_, [&](const Event& rank) { return number_in(object_in(rank, group), name); });
  return sent.empty() ? NAN : std::accumulate(sent.begin(), sent.end(), 0.0);
}

std::vector<RunFigure> RunDigest::figures() const {
  using Unit = RunFigure::Unit;
  std::vector<RunFigure> figures;
  const auto number = [&](std::string key, std::string name, Unit unit, double value) {
    if (!std::isnan(value)) figures.push_back({std::move(key), std::move(name), unit, value, {}});
  };
  const auto words = [&](const char* key, std::string text) {
    if (!text.empty()) figures.push_back({key, key, Unit::text, 0, std::move(text)});
  };
  if (!plan_.is_null()) {
    number("params", "parameters", Unit::count, number_in(plan_, "params"));
    words("dtype", text_in(plan_, "dtype"));
    number("world_size", "ranks", Unit::count, number_in(plan_, "world_size"));
    number("stage", "stage", Unit::count, number_in(plan_, "stage"));
    words("placement", text_in(object_in(plan_, "placement"), "flags"));
  }
  const auto steps = static_cast<double>(steps_);
  number("steps", "steps", Unit::count, steps);
  if (steps_ > 0) {
    number("tokens", "tokens", Unit::count, tokens_);
    number("tokens_per_second", "tokens/s, median", Unit::rate, median_speed());
    number("seconds_per_step", "seconds a step", Unit::seconds, seconds_ / steps);
    for (const auto& [name, seconds] : stalls_) {
      const std::string named = text_in({{"name", name}}, "name");
      number("stall_seconds_per_step/" + named, "  stalls: " + named, Unit::seconds, seconds / steps);
    }
    if (losses_.first) number("loss_first", "loss, first", Unit::loss, losses_.first->value);
    if (losses_.last) number("loss_last", "loss, last", Unit::loss, losses_.last->value);
    if (evaluations_.last) number("eval_loss_last", "eval loss, last", Unit::loss, evaluations_.last->value);
  }
  for (const char* tier : {"device", "host", "nvme"})
    number(fmt::format("peak_bytes/{}", tier), fmt::format("{} memory, peak", tier), Unit::bytes,
           peak_bytes(tier, "total"));
  constexpr std::array<std::array<const char*, 3>, 8> kMoved{{{"comm_bytes", "all_gather", "all-gather a step"},
                                                              {"comm_bytes", "reduce_scatter", "reduce-scatter a step"},
                                                              {"comm_bytes", "all_reduce", "all-reduce a step"},
                                                              {"comm_bytes", "between_nodes", "between nodes a step"},
                                                              {"link_bytes", "host_to_device", "host to device a step"},
                                                              {"link_bytes", "device_to_host", "device to host a step"},
                                                              {"io_bytes", "read", "read from files a step"},
                                                              {"io_bytes", "write", "written to files a step"}}};
  for (const auto& [group, name, told] : kMoved)
    number(fmt::format("{}/{}", group, name), told, Unit::bytes, sent_by_ranks(group, name));
  if (!summary_.is_null()) words("weights_hash", text_in(summary_, "weights_hash"));
  return figures;
}

}  // namespace zeepo
