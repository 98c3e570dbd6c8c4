#include "zeepo/metrics/prometheus_file.h"

#include <cmath>

#include "zeepo/base/file.h"
#include "zeepo/metrics/event_numbers.h"
#include "zeepo/metrics/named_error.h"

namespace zeepo {
namespace {

std::string value_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// Of a label's value: what its quotes need.
std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\\' || c == '"') safe += '\\';
    safe += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return safe;
}

// What a name may not have becomes _.
std::string metric_name(const std::string& prefix, std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return prefix + name;
}

// Numbers of a step that are a state of their own, with what HELP says of them.
const std::map<std::string, std::pair<std::string, std::string>>& step_gauges() {
  static const std::map<std::string, std::pair<std::string, std::string>> gauges{
      {"loss", {"zeepo_loss", "Mean loss over the tokens of the last step."}},
      {"grad_norm", {"zeepo_grad_norm", "L2 norm of all gradients of the last step, before clipping."}},
      {"lr", {"zeepo_learning_rate", "Learning rate of the last step."}},
      {"seconds", {"zeepo_step_seconds", "Duration of the last step."}},
      {"tokens_per_second", {"zeepo_tokens_per_second", "Tokens a second in the last step, on all ranks."}},
      {"tflops", {"zeepo_tflops", "Model arithmetic in the last step, in 10^12 operations a second."}},
      {"loss_scale", {"zeepo_loss_scale", "Loss scale of the last step (fp16)."}}};
  return gauges;
}

}  // namespace

std::string text_of(const std::map<std::string, PrometheusMetric>& metrics) {
  std::string text;
  for (const auto& [name, metric] : metrics) {
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, metric.help, name, metric.type);
    for (const auto& [labels, value] : metric.samples)
      text += fmt::format("{}{} {}\n", name, labels, value_text(value));
  }
  return text;
}

PrometheusFile::PrometheusFile(const std::filesystem::path& path) : path_(path) {
  named_by(name(), [&] { const OutputFile trial(path); });
  count("zeepo_faults_total", "Faults that did not end the run.", 0);
  count("zeepo_checkpoints_total", "Checkpoints that this process has written.", 0);
}

void PrometheusFile::gauge(const std::string& metric, const std::string& help, double value,
                           const std::string& labels) {
  metrics_.try_emplace(metric, PrometheusMetric{"gauge", help}).first->second.samples[labels] = value;
}

void PrometheusFile::count(const std::string& metric, const std::string& help, double more, const std::string& labels) {
  metrics_.try_emplace(metric, PrometheusMetric{"counter", help}).first->second.samples[labels] += more;
}

void PrometheusFile::write(const Event& event) {
  const std::string kind = kind_of(event);
  take(event, kind);
  if (kind != "step" && kind != "summary" && kind != "stop") return;
  OutputFile file(path_);
  file.write(text_of(metrics_));
  file.commit(OutputFile::Sync::no);
}

void PrometheusFile::take(const Event& event, const std::string& kind) {
  if (kind == "step") return take_step(event);
  if (kind == "plan")
    gauge("zeepo_run_info", "The run, by its labels; the value is 1.", 1,
          fmt::format("{{dtype=\"{}\",stage=\"{}\",world_size=\"{}\"}}", escaped(event.value("dtype", "")),
                      event.value("stage", 0), event.value("world_size", 0)));
  if (kind == "eval") {
    gauge("zeepo_eval_step", "Step after which the last evaluation was.", static_cast<double>(step_of(event)));
    for (const EventNumber& number : numbers_of(event, '_'))
      gauge(metric_name("zeepo_eval_", number.name), "Of the last evaluation.", number.number());
  }
  if (kind == "checkpoint") {
    count("zeepo_checkpoints_total", "", 1);
    gauge("zeepo_checkpoint_step", "Step of the newest whole checkpoint.", static_cast<double>(step_of(event)));
  }
  if (kind == "fault") count("zeepo_faults_total", "", 1);
  if (kind == "summary") gauge("zeepo_finished", "1 when all steps are done.", 1);
}

void PrometheusFile::take_step(const Event& event) {
  gauge("zeepo_step", "Number of the last step.", static_cast<double>(step_of(event)));
  gauge("zeepo_finished", "1 when all steps are done.", 0);
  count("zeepo_steps_total", "Steps that this process has done.", 1);
  for (const EventNumber& number : numbers_of(event, '/')) {
    const auto parts = [&](std::size_t skip) { return number.name.substr(skip); };
    if (const auto known = step_gauges().find(number.name); known != step_gauges().end()) {
      gauge(known->second.first, known->second.second, number.number());
    } else if (number.name == "tokens") {
      count("zeepo_tokens_total", "Tokens that this process has trained on, on all ranks.", number.number());
    } else if (number.name.starts_with("stall_seconds/")) {
      count("zeepo_stall_seconds_total", "Seconds that the compute of rank 0 has waited, by what for.", number.number(),
            fmt::format("{{for=\"{}\"}}", escaped(parts(14))));
    } else if (number.name.starts_with("memory/")) {
      const std::string rest = parts(7), tier = rest.substr(0, rest.find('/'));
      const std::string kind = rest.find('/') == std::string::npos ? "" : rest.substr(rest.find('/') + 1);
      if (kind == "total")
        gauge("zeepo_memory_total_bytes", "Peak of the last step on rank 0, all kinds together, by tier.",
              number.number(), fmt::format("{{tier=\"{}\"}}", escaped(tier)));
      else
        gauge("zeepo_memory_bytes", "Peak of the last step on rank 0, by tier and kind.", number.number(),
              fmt::format("{{tier=\"{}\",kind=\"{}\"}}", escaped(tier), escaped(kind)));
    }
  }
}

}  // namespace zeepo
