// `--prometheus FILE`: the state of the run in Prometheus' text format, for node_exporter's textfile collector.
//
// The file is replaced after each step, by a rename. Other events are in it from the next step on; the last ones, at
// the end of the run, at once.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "zeepo/metrics/event_sink.h"

namespace zeepo {

// One metric with its samples, by their labels: `{tier="host"}`, or nothing.
struct PrometheusMetric {
  std::string type, help;
  std::map<std::string, double> samples = {};
};

class PrometheusFile final : public EventSink {
 public:
  // Throws Error when the file cannot be made.
  explicit PrometheusFile(const std::filesystem::path& path);
  std::string name() const override { return "--prometheus " + path_.string(); }
  void write(const Event& event) override;
  bool recovers() const override { return true; }

 private:
  void take(const Event& event, const std::string& kind);
  void take_step(const Event& event);
  void gauge(const std::string& metric, const std::string& help, double value, const std::string& labels = "");
  void count(const std::string& metric, const std::string& help, double more, const std::string& labels = "");

  std::filesystem::path path_;
  std::map<std::string, PrometheusMetric> metrics_;
};

// With HELP and TYPE lines; labels and values as they are.
std::string text_of(const std::map<std::string, PrometheusMetric>& metrics);

}  // namespace zeepo
