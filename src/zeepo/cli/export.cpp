// zeepo export: a checkpoint to a Hugging Face directory, a chunk at a time.
#include <fmt/format.h>

#include <memory>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/checkpoint/checkpoint.h"
#include "zeepo/cli/byte_progress.h"
#include "zeepo/cli/commands.h"
#include "zeepo/model/model_directory.h"
#include "zeepo/model/model_tensors.h"
#include "zeepo/train/weight_check.h"

namespace zeepo::cli {
namespace {

struct ExportOptions {
  std::filesystem::path checkpoint, output;
  std::string dtype, shard_size;
};

// A text that names no dtype or size is a usage error.
template <class F>
auto parsed(const char* option, const F& parse) {
  try {
    return parse();
  } catch (const Error& error) {
    throw UsageError("export: {}: {}", option, error.what());
  }
}

void export_checkpoint(const ExportOptions& options) {
  ModelDirectoryOptions output;
  if (!options.dtype.empty()) output.dtype = parsed("--dtype", [&] { return parse_dtype(options.dtype); });
  if (!options.shard_size.empty())
    output.shard_bytes = parsed("--shard-size", [&] { return parse_size(options.shard_size); });
  if (output.shard_bytes < 1) throw UsageError("export: --shard-size {}: must be at least 1", options.shard_size);
  Checkpoint checkpoint(options.checkpoint);
  checkpoint.verify_model_files();
  if (options.dtype.empty()) output.dtype = parse_dtype(checkpoint.manifest().dtype);
  const auto tensors = model_tensors(load_config(checkpoint.model_folder()));
  std::int64_t all = 0, done = 0;
  for (const auto& [name, shape] : tensors) all += 4 * elements_of(name, shape);
  const WeightCheck check{output.dtype, fmt::format("export: {}", options.checkpoint.string()),
                          "use --dtype fp32; nothing is written to --output"};
  ByteProgress progress("export", all);
  const auto read = [&](const std::string& name, std::int64_t begin, std::span<float> out) {
    checkpoint.read(name, 0, begin, out);
    check(name, begin, out);
    progress.show(done += static_cast<std::int64_t>(out.size_bytes()));
  };
  write_model_directory(checkpoint.model_folder(), options.output, tensors, read, output);
  say("step {} in {}: {}\n", checkpoint.manifest().step, name_of(output.dtype), options.output.string());
}

}  // namespace

void add_export(CLI::App& program) {
  auto* command = program.add_subcommand("export", "Write a checkpoint as a Hugging Face directory");
  const auto options = std::make_shared<ExportOptions>();
  command->add_option("CHECKPOINT", options->checkpoint, "One checkpoint: a directory with manifest.json")->required();
  command->add_option("--output", options->output, "The directory to write")->required();
  command->add_option("--dtype", options->dtype, "fp32, bf16 or fp16 [the run's]");
  command->add_option("--shard-size", options->shard_size, "Of each safetensors file, at most [50GB]");
  command->footer("Example: zeepo export runs/step-00000100 --output tuned --dtype bf16 --shard-size 5GB");
  command->callback([options] { export_checkpoint(*options); });
}

}  // namespace zeepo::cli
