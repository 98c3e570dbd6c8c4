// zeepo report: what the log of a run tells, as text and as a page with plots.
#include <fmt/format.h>

#include <memory>

#include "zeepo/base/file.h"
#include "zeepo/cli/commands.h"
#include "zeepo/metrics/run_log.h"
#include "zeepo/metrics/run_page.h"

namespace zeepo::cli {
namespace {

struct ReportOptions {
  std::filesystem::path log, html;
};

void report(const ReportOptions& options) {
  const RunLog log = read_run_log(options.log);
  fmt::print("{}\n{}", options.log.string(), log.digest.text());
  if (log.repeated_steps > 0)
    fmt::print("{:<12}{} steps were done again after a resume; the later ones count\n", "note", log.repeated_steps);
  if (log.damaged_lines > 0)
    fmt::print("{:<12}{} of {} lines are no events and were left out\n", "note", log.damaged_lines, log.lines);
  if (log.ends_in_a_line)
    fmt::print("{:<12}the last line has no end: the run was killed while it wrote, or writes now\n", "note");
  if (options.html.empty()) return;
  OutputFile page(options.html);
  page.write(run_page(options.log.filename().string(), log.history));
  page.commit();
  fmt::print("{:<12}{}\n", "page", options.html.string());
}

}  // namespace

void add_report(CLI::App& program) {
  auto* command = program.add_subcommand("report", "Tell what the log of a training run holds, as text or as a page");
  const auto options = std::make_shared<ReportOptions>();
  command->add_option("LOG", options->log, "The file of zeepo train --log")->required();
  command->add_option("--html", options->html, "Write a page with plots: one file, which needs no network");
  command->footer("Example: zeepo report run.jsonl --html run.html");
  command->callback([options] { report(*options); });
}

}  // namespace zeepo::cli
