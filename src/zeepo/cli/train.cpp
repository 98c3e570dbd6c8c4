#include <memory>
#include <optional>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/cli/commands.h"
#include "zeepo/cli/ranks.h"
#include "zeepo/cli/table_options.h"
#include "zeepo/elastic/supervisor.h"
#include "zeepo/plan/timed_placement.h"
#include "zeepo/train/given_options.h"
#include "zeepo/train/stopping.h"
#include "zeepo/train/trainer.h"

namespace zeepo::cli {
namespace {

TrainOptions options_of(const CLI::App& command, const std::filesystem::path& config_path, const Launch& launch) {
  std::optional<DeepSpeedConfig> config;
  if (command.count("--config") > 0) config = load_deepspeed_config(config_path);
  GivenOptions given = make_options(given_texts(command), config ? &*config : nullptr, launch.size);
  if (launch.rank == 0) {
    if (config && !config->unused.empty()) say("zeepo: warning: {}\n", warning_of(*config));
    for (const std::string& line : given.notes) say("{}\n", line);
  }
  return std::move(given.options);
}

bool wants_elastic(const OptionTexts& texts) {
  const auto found = texts.find("--elastic");
  return found != texts.end() && found->second == "true";
}

// This process starts the ranks.
void supervise_run(const CLI::App& command, const std::filesystem::path& config, const Launch& launch) {
  if (launch.mpi)
    throw UsageError(
        "train: --elastic: starts the ranks itself; without mpirun or srun, use: zeepo train --elastic --hosts "
        "node1,node2 --ranks-per-host {} ...",
        launch.local_size);
  const OptionTexts texts = given_texts(command);
  TrainOptions given;
  for (const char* name : {"--hosts", "--ranks-per-host"})
    if (const auto found = texts.find(name); found != texts.end()) assign(given, name, found->second);
  std::vector<HostSlots> hosts = read_hosts(given.elastic.hosts, given.elastic.ranks_per_host);
  Launch all;
  all.size = slots_of(hosts);
  const int code = supervise({texts, config.string(), std::move(hosts), options_of(command, config, all)});
  if (code == kStoppedAndSaved)
    throw EndedWith(code, "train: --elastic: stopped; --resume goes on from the newest checkpoint");
  if (code != 0) throw EndedWith(code, "train: --elastic: a job has ended with exit code {}: see above", code);
}

}  // namespace

void add_train(CLI::App& program) {
  auto* command = program.add_subcommand("train", "Train a model from a Hugging Face directory on text or tokens");
  const auto config = std::make_shared<std::filesystem::path>();
  command->add_option("--config", *config, "DeepSpeed's JSON; options given here win over it");
  for (const TrainOption& option : option_table())
    if (option.on_command_line())
      add_table_option(*command, option, std::string(title_of(option.group)))->required(option.required);
  command->footer(
      "Examples: zeepo train --model gpt2 --data book.txt --seq-len 512 --steps 100 --output tuned\n"
      "          mpirun -n 4 zeepo train --stage 3 --model llama --data tokens.bin --steps 100");
  command->callback([command, config] {
    const Launch launch = detect_launch();
    if (wants_elastic(given_texts(*command))) return supervise_run(*command, *config, launch);
    const TrainOptions options = options_of(*command, *config, launch);
    run_as_ranks(launch, {options.backend, options.comm, options.timeout_seconds, options.rank_bytes_per_second},
                 [&](Communicator& communicator) { Trainer(options, communicator, placement_by_probe).run(); });
  });
}

}  // namespace zeepo::cli
