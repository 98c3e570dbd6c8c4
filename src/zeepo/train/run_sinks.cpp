#include "zeepo/train/run_sinks.h"

#include <utility>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/metrics/csv_file.h"
#include "zeepo/metrics/dashboard.h"
#include "zeepo/metrics/event_log.h"
#include "zeepo/metrics/prometheus_file.h"
#include "zeepo/metrics/tensorboard_file.h"

namespace zeepo {
namespace {

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(a, ignored)) return std::filesystem::equivalent(a, b, ignored);
  return !std::filesystem::exists(a, ignored) && a.lexically_normal() == b.lexically_normal();
}

// Files begin anew: a name given by mistake must cost neither the data nor another file of the run.
void check_names(const TrainOptions& options) {
  std::vector<std::pair<const char*, std::filesystem::path>> known;
  for (const auto& [option, path] : {std::pair{"--data", options.data}, std::pair{"--eval-data", options.eval_data}})
    if (!path.empty()) known.emplace_back(option, path);
  for (const auto& [option, path] :
       {std::pair{"--log", std::filesystem::path(options.log)}, std::pair{"--csv", options.csv},
        std::pair{"--prometheus", options.prometheus}, std::pair{"--trace", options.trace}}) {
    if (path.empty()) continue;
    for (const auto& [other, taken] : known)
      if (same_file(path, taken))
        throw Error("train: {} {}: is the file of {}; name another", option, path.string(), other);
    known.emplace_back(option, path);
  }
}

std::unique_ptr<EventSink> make_dashboard(const TrainOptions& options) {
  const auto& [wanted, host, port] = options.dashboard;
  const std::filesystem::path model = options.model.lexically_normal();
  const std::string title = (model.has_filename() ? model : model.parent_path()).filename().string();
  try {
    auto made = std::make_unique<Dashboard>(host, port, title);
    say("dashboard at {}\n", made->address());
    return made;
  } catch (const Error& error) {
    throw Error("--dashboard {}", error.what());
  }
}

}  // namespace

EventSinks make_sinks(const TrainOptions& options) {
  const auto mode = options.resume.wanted ? GrowingFile::Mode::append_lines : GrowingFile::Mode::fresh;
  check_names(options);
  EventSinks sinks;
  if (!options.log.empty()) sinks.add(std::make_unique<EventLog>(options.log, mode));
  if (!options.csv.empty()) sinks.add(std::make_unique<CsvFile>(options.csv, mode));
  if (!options.prometheus.empty()) sinks.add(std::make_unique<PrometheusFile>(options.prometheus));
  if (!options.tensorboard.empty()) sinks.add(std::make_unique<TensorBoardFile>(options.tensorboard));
  if (options.dashboard.wanted) sinks.add(make_dashboard(options));
  return sinks;
}

}  // namespace zeepo
