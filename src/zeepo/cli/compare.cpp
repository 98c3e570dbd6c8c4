// zeepo compare: the logs of several runs side by side.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "zeepo/cli/commands.h"
#include "zeepo/metrics/compared_runs.h"
#include "zeepo/metrics/run_log.h"

namespace zeepo::cli {
namespace {

struct CompareOptions {
  std::vector<std::filesystem::path> logs;
  bool json = false;
};

void compare(const CompareOptions& options) {
  std::vector<RunLog> logs;
  for (const auto& path : options.logs) logs.push_back(read_run_log(path));
  std::vector<ComparedRun> runs;
  for (std::size_t i = 0; i < logs.size(); ++i) runs.push_back({options.logs[i].string(), &logs[i].digest});
  if (options.json)
    fmt::print("{}", line_of(comparison_json(runs)));
  else
    fmt::print("{}", comparison_text(runs));
}

}  // namespace

void add_compare(CLI::App& program) {
  auto* command = program.add_subcommand("compare", "Put training runs side by side: speed, memory, bytes, losses");
  const auto options = std::make_shared<CompareOptions>();
  command->add_option("LOGS", options->logs, "Files of zeepo train --log; the first is what the others stand beside")
      ->required()
      ->expected(2, 16);
  command->add_flag("--json", options->json, "One JSON object");
  command->footer("Example: zeepo compare resident.jsonl offloaded.jsonl");
  command->callback([options] { compare(*options); });
}

}  // namespace zeepo::cli
