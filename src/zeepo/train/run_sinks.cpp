#include "zeepo/train/run_sinks.h"

#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/metrics/csv_file.h"
#include "zeepo/metrics/dashboard.h"
#include "zeepo/metrics/event_log.h"
#include "zeepo/metrics/prometheus_file.h"
#include "zeepo/metrics/tensorboard_file.h"

namespace zeepo {
namespace {

// Files begin anew: one that is the data, by whatever name, would cost the data.
void check_not_data(const TrainOptions& options) {
  const std::filesystem::path log = options.log;
  for (const auto& [option, path] :
       {std::pair{"--log", &log}, std::pair{"--csv", &options.csv}, std::pair{"--prometheus", &options.prometheus},
        std::pair{"--trace", &options.trace}})
    for (const auto& [input, data] :
         {std::pair{"--data", &options.data}, std::pair{"--eval-data", &options.eval_data}}) {
      std::error_code not_there;
      if (std::filesystem::equivalent(*path, *data, not_there))
        throw Error("train: {} {}: is the file of {}; name another", option, path->string(), input);
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
  check_not_data(options);
  EventSinks sinks;
  if (!options.log.empty()) sinks.add(std::make_unique<EventLog>(options.log, mode));
  if (!options.csv.empty()) sinks.add(std::make_unique<CsvFile>(options.csv, mode));
  if (!options.prometheus.empty()) sinks.add(std::make_unique<PrometheusFile>(options.prometheus));
  if (!options.tensorboard.empty()) sinks.add(std::make_unique<TensorBoardFile>(options.tensorboard));
  if (options.dashboard.wanted) sinks.add(make_dashboard(options));
  return sinks;
}

}  // namespace zeepo
