#include "zeepo/train/report.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <utility>

#include "zeepo/base/say.h"
#include "zeepo/zero/rank_report.h"

namespace zeepo {
namespace {

std::string duration(double seconds) {
  const auto total = std::llround(seconds);
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{} min {:02} s", total / 60, total % 60);
  return fmt::format("{} h {:02} min", total / 3600, total / 60 % 60);
}

}  // namespace

float unsigned_nan(float value) { return std::isnan(value) ? std::abs(value) : value; }

nlohmann::ordered_json json_number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json to_json(const StepReport& report) {
  nlohmann::ordered_json event{{"event", "step"},
                               {"step", report.step},
                               {"loss", json_number(report.result.loss)},
                               {"grad_norm", json_number(report.result.grad_norm)},
                               {"lr", report.lr},
                               {"tokens", report.tokens},
                               {"seconds", report.seconds},
                               {"tokens_per_second", report.tokens_per_second},
                               {"tflops", report.tflops},
                               {"stall_seconds",
                                {{"gather", report.stalls.gather},
                                 {"host", report.stalls.host},
                                 {"nvme", report.stalls.nvme},
                                 {"step", report.stalls.step}}}};
  for (const Place place : kPlaces)
    event["memory"][std::string(name_of(place))] = to_json(report.memory[static_cast<std::size_t>(place)]);
  if (report.loss_tokens) event["loss_tokens"] = *report.loss_tokens;
  if (report.result.loss_scale != 1) {
    event["loss_scale"] = report.result.loss_scale;
    event["skipped"] = report.result.skipped;
  } else if (report.result.skipped) {
    event["skipped"] = true;
  }
  return event;
}

Progress::Progress(std::int64_t steps, std::int64_t before)
    : steps_(steps),
      before_(before),
      terminal_(::isatty(STDERR_FILENO) != 0),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (open_line_) std::fputc('\n', stderr);
}

void Progress::say(const std::string& line) {
  zeepo::say("{}{}\n", std::exchange(open_line_, false) ? "\n" : "", line);
}

void Progress::step(const StepReport& report) {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const double seconds_a_step = elapsed.count() / static_cast<double>(report.step - before_);
  const double left = seconds_a_step * static_cast<double>(steps_ - report.step);
  std::string line = fmt::format("step {}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:.0f} tokens/s", report.step,
                                 steps_, unsigned_nan(report.result.loss), unsigned_nan(report.result.grad_norm),
                                 report.lr, report.tokens_per_second);
  if (report.result.not_finite)
    line += "  skipped";  // why has been told
  else if (report.result.skipped)
    line += fmt::format("  skipped: overflow at loss scale {:.0f}", report.result.loss_scale);
  if (report.step < steps_) line += fmt::format("  {} left", duration(left));
  if (terminal_) {
    say_anew("{}", line);
    std::fflush(stderr);
    open_line_ = true;
  } else {
    zeepo::say("{}\n", line);
  }
}

}  // namespace zeepo
