#include <algorithm>

#include "zeepo/train/option_entries.h"
#include "zeepo/train/option_kinds.h"

namespace zeepo {

using namespace option_kinds;

namespace {

// "8080", "0.0.0.0:8080", "[::1]:8080".
void read_dashboard(const std::string& label, const std::string& text, TrainOptions& options) {
  const std::size_t colon = text.rfind(':');
  const bool has_host = colon != std::string::npos;
  std::string host = has_host ? text.substr(0, colon) : "127.0.0.1";
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || (has_host && !bracketed && host.find(':') != std::string::npos))
    throw UsageError("{} {}: must be a port, or a host and a port: 8080, 0.0.0.0:8080, [::1]:8080", label, text);
  const std::string port = has_host ? text.substr(colon + 1) : text;
  const int number = parse_whole<int>(label, port, 0, 65535);
  if (number < 0 || number > 65535) throw UsageError("{} {}: must be a port from 0 to 65535", label, text);
  options.dashboard = {true, host, number};
}

std::string text_of_dashboard(const TrainOptions& options) {
  const auto& [wanted, host, port] = options.dashboard;
  if (!wanted) return "";
  if (host == "127.0.0.1") return fmt::format("{}", port);
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

// Two would write over each other.
void check_places(const TrainOptions& options) {
  const std::pair<const char*, std::filesystem::path> files[] = {
      {"--log", options.log}, {"--csv", options.csv}, {"--prometheus", options.prometheus}, {"--trace", options.trace}};
  for (const auto& file : files)
    for (const auto& other : files)
      if (&file < &other && !file.second.empty() && file.second.lexically_normal() == other.second.lexically_normal())
        throw UsageError("train: {} {}: is the file of {} too; name another", other.first, other.second.string(),
                         file.first);
}

}  // namespace

void add_metrics_options(std::vector<TrainOption>& table) {
  constexpr OptionGroup kGroup = OptionGroup::report;
  table.push_back(path(
      {.name = "--tensorboard",
       .group = kGroup,
       .help = "A directory for TensorBoard: an event file with every number of each step",
       .effect = Effect::execution,
       .ranks = Ranks::may_differ},
      [](auto& o) -> auto& { return o.tensorboard; }));
  table.push_back(path(
      {.name = "--csv",
       .group = kGroup,
       .help = "A table with a row for each step; --resume appends",
       .effect = Effect::execution,
       .ranks = Ranks::may_differ},
      [](auto& o) -> auto& { return o.csv; }));
  TrainOption prometheus = path(
      {.name = "--prometheus",
       .group = kGroup,
       .help = "The state of the run in Prometheus' text format, replaced after each step: a .prom file where "
               "node_exporter's textfile collector looks",
       .effect = Effect::execution,
       .ranks = Ranks::may_differ},
      [](auto& o) -> auto& { return o.prometheus; });
  prometheus.check = check_places;
  table.push_back(prometheus);
  table.push_back(other(
      {.name = "--dashboard",
       .group = kGroup,
       .help = "A live page with plots at this port of this machine, or of a host: 8080, 0.0.0.0:8080; 0 takes a free "
               "port and says which",
       .otherwise = "none",
       .effect = Effect::execution,
       .ranks = Ranks::may_differ},
      read_dashboard, text_of_dashboard));
}

}  // namespace zeepo
