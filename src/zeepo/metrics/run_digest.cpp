#include "zeepo/metrics/run_digest.h"

#include <algorithm>
#include <cmath>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"
#include "zeepo/metrics/event_numbers.h"

namespace zeepo {
namespace {

constexpr std::size_t kMostTextBytes = 500;

double number_in(const Event& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<double>() : NAN;
}

// Without what would change the terminal.
std::string text_in(const Event& event, const char* key) {
  const auto found = event.find(key);
  if (found == event.end() || !found->is_string()) return "";
  std::string text = found->get<std::string>().substr(0, kMostTextBytes);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  return text;
}

// Groups of three digits: 12,345,678.
std::string grouped(double value) {
  if (!(std::abs(value) < 1e18)) return fmt::format("{}", value);
  const std::string digits = fmt::format("{}", std::llround(value));
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    out += digits[i];
    const std::size_t left = digits.size() - i - 1;
    if (left > 0 && left % 3 == 0 && digits[i] != '-') out += ',';
  }
  return out;
}

std::string bytes_text(double bytes) {
  return bytes >= 0 && bytes < 9e18 ? format_size(static_cast<std::int64_t>(bytes)) : "?";
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0 && seconds < 1e15)) return "?";
  if (seconds < 1) return fmt::format("{:.3g} ms", 1000 * seconds);
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  const auto minutes = static_cast<std::int64_t>(seconds / 60);
  return minutes < 120 ? fmt::format("{} min {:02} s", minutes, static_cast<std::int64_t>(seconds) % 60)
                       : fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
}

template <class T>
void raise(T& value, double other) {
  if (other > value) value = other;
}

}  // namespace

void RunDigest::Losses::add(std::int64_t step, const Event& event) {
  const double value = number_in(event, "loss");
  ++count;
  last = {step, value};
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
    if (field.name == "seconds") seconds_ += value;
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

std::string RunDigest::speed_text() const {
  std::string text = fmt::format("{:<12}{} tokens in {}", "speed", grouped(tokens_), duration_text(seconds_));
  if (!tokens_per_second_.empty()) {
    std::vector<float> sorted = tokens_per_second_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::ranges::nth_element(sorted, middle);
    text += fmt::format("; median {} tokens/s", *middle < 100 ? fmt::format("{:.3g}", *middle) : grouped(*middle));
  }
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

}  // namespace zeepo
