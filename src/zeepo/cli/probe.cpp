// zeepo probe: measures this machine.
#include <fmt/format.h>

#include <memory>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/cli/commands.h"
#include "zeepo/cli/ranks.h"
#include "zeepo/cli/table_options.h"
#include "zeepo/metrics/event_sink.h"
#include "zeepo/probe/measure.h"
#include "zeepo/train/option_values.h"

namespace zeepo::cli {
namespace {

constexpr std::array kRunOptions{"--device", "--threads", "--nvme-path", "--comm"};

// They are train's, and so is what they say: here in this command's name.
TrainOptions options_of(const OptionTexts& texts) {
  TrainOptions given;
  given.backend = default_backend();
  try {
    for (const auto& [name, text] : texts) assign(given, name, text);
  } catch (const UsageError& error) {
    constexpr std::string_view kTrain = "train: ";
    const std::string said = error.what();
    throw UsageError("{}", said.starts_with(kTrain) ? "probe: " + said.substr(kTrain.size()) : said);
  }
  return given;
}

void probe(const OptionTexts& texts, bool json) {
  const Launch launch = detect_launch();
  const TrainOptions given = options_of(texts);
  run_as_ranks(launch, {given.backend, given.comm}, [&](Communicator& communicator) {
    const GpuPlace place = given.backend == Backend::cuda ? find_gpu(communicator) : GpuPlace{};
    const MachineRates rates = measure_machine(
        {.backend = given.backend, .threads = given.threads, .nvme_paths = given.nvme_paths}, place, communicator);
    if (communicator.rank() != 0) return;
    fmt::print("{}", json ? line_of(to_json(rates)) : text_of(rates));
    const auto path = rates_path(rates.machine, rates.backend, rates.ranks);
    if (path.empty()) return;
    try {
      keep(rates, path);
    } catch (const Error& error) {  // what was measured has been told
      say("zeepo: warning: {}; zeepo plan and --placement auto will not know these rates\n", error.what());
      return;
    }
    if (!json) fmt::print("{:<16}{}\n", "kept in", path.string());
  });
}

}  // namespace

void add_probe(CLI::App& program) {
  auto* command = program.add_subcommand(
      "probe", "Measure this machine in seconds: matrix rate, memory, links, files, the step, and collectives");
  const auto json = std::make_shared<bool>(false);
  for (const char* name : kRunOptions) add_table_option(*command, *find_option(name), "Options");
  command->add_flag("--json", *json, "One JSON object");
  command->footer(
      "Examples: zeepo probe --nvme-path /nvme\n"
      "          mpirun -n 4 zeepo probe --json");
  command->callback([command, json] { probe(given_texts(*command), *json); });
}

}  // namespace zeepo::cli
