// zeepo inspect: what a checkpoint, a directory of checkpoints or a model directory holds, and whether it is whole.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/base/printable.h"
#include "zeepo/checkpoint/checkpoint.h"
#include "zeepo/checkpoint/checkpoint_directory.h"
#include "zeepo/cli/byte_progress.h"
#include "zeepo/cli/commands.h"
#include "zeepo/metrics/event_sink.h"
#include "zeepo/model/config.h"
#include "zeepo/model/model_tensors.h"
#include "zeepo/model/safetensors_writer.h"
#include "zeepo/model/weight_files.h"
#include "zeepo/model/weight_names.h"
#include "zeepo/train/option_table.h"

namespace zeepo::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::filesystem::path path;
  bool json = false, tensors = false;
};

void print_tensor(const std::string& name, const std::string& dtype, const std::vector<std::int64_t>& shape) {
  fmt::print("  {} {} ({})\n", printable(name), printable(dtype), fmt::join(shape, ", "));
}

// Those that were not left as they are by default.
std::string given_options(const Manifest& manifest) {
  std::string given;
  for (const auto& [name, text] : manifest.options) {
    const TrainOption* option = find_option(name);
    const bool unset = option && (text_of_default(*option) == text || (option->is_flag && text == "false"));
    if (name.starts_with("--") && !unset) given += fmt::format(" {}{}", name, text == "true" ? "" : " " + text);
  }
  return given;
}

// Whether the directory around it has it as the one with the lowest loss of an evaluation.
bool is_best(const std::filesystem::path& path, const Manifest& manifest) {
  std::error_code error;
  const auto place = std::filesystem::canonical(path, error);
  return !error && best_checkpoint(place.parent_path()) == manifest.step &&
         place.filename() == checkpoint_path("", manifest.step);
}

void inspect_checkpoint(const std::filesystem::path& path, const InspectOptions& options) {
  Checkpoint checkpoint(path);
  const Manifest& manifest = checkpoint.manifest();
  {
    ByteProgress progress("verify", checkpoint.bytes());
    checkpoint.verify([&](std::int64_t bytes) { progress.show(bytes); });
  }
  std::int64_t params = 0;
  for (const auto& [name, shape] : manifest.weights) params += elements_of(name, shape);
  if (options.json) {
    Json weights = Json::array();
    for (const auto& [name, shape] : manifest.weights) weights.push_back({{"name", name}, {"shape", shape}});
    fmt::print("{}", line_of(Json{{"kind", "checkpoint"},
                                  {"path", path.string()},
                                  {"whole", true},
                                  {"step", manifest.step},
                                  {"samples", manifest.samples},
                                  {"loss", manifest.loss},
                                  {"eval_loss", manifest.eval_loss ? Json(*manifest.eval_loss) : Json(nullptr)},
                                  {"best", is_best(path, manifest)},
                                  {"params", params},
                                  {"dtype", manifest.dtype},
                                  {"moments", manifest.moments},
                                  {"ranks", manifest.ranks},
                                  {"bytes", checkpoint.bytes()},
                                  {"options", manifest.options},
                                  {"weights", std::move(weights)}}));
    return;
  }
  fmt::print("{}: a checkpoint of step {}, whole{}\n", path.string(), manifest.step,
             is_best(path, manifest) ? "; the best" : "");
  fmt::print("  {} parameters in {} weights, trained in {}, with {} moments each; loss {:.4f}\n", params,
             manifest.weights.size(), manifest.dtype, manifest.moments, manifest.loss);
  fmt::print("  {} in {} files, written by {} ranks; {} samples visited\n", format_size(checkpoint.bytes()),
             manifest.files.size(), manifest.ranks, manifest.samples);
  if (manifest.eval_loss) fmt::print("  evaluated: loss {:.4f}\n", *manifest.eval_loss);
  fmt::print("  options:{}\n", printable(given_options(manifest)));
  if (!options.tensors) return;
  for (const auto& [name, shape] : manifest.weights) print_tensor(name, "fp32", shape);
}

// All of them, also behind one that is damaged.
void inspect_all(const std::vector<CheckpointEntry>& found, const InspectOptions& options) {
  std::string first_fault;
  for (const auto& entry : found) try {
      inspect_checkpoint(entry.path, options);
    } catch (const Error& error) {
      if (options.json)
        fmt::print("{}", line_of(Json{{"kind", "checkpoint"},
                                      {"path", entry.path.string()},
                                      {"whole", false},
                                      {"step", entry.step},
                                      {"fault", error.what()}}));
      else
        fmt::print("{}: damaged\n", entry.path.string());
      if (first_fault.empty()) first_fault = error.what();
    }
  if (!first_fault.empty()) throw Error("{}", first_fault);
}

// Throws Error where a tensor is missing, unknown or not of the shape that config.json gives it.
void check_weights(const ModelConfig& config, const WeightFiles& files) {
  std::vector<ExpectedWeight> expected;
  for (ModelTensor& tensor : model_tensors(config))
    expected.push_back({std::move(tensor.name), std::move(tensor.shape)});
  match_weights(config, expected, files);
}

void inspect_model(const InspectOptions& options) {
  const ModelConfig config = load_config(options.path);
  std::optional<WeightFiles> weights;
  if (has_weights(options.path)) {
    weights.emplace(options.path);
    check_weights(config, *weights);
  }
  std::int64_t params = 0, bytes = 0;
  std::size_t count = 0;
  Json tensors = Json::array();
  if (weights)
    for (const SafetensorsFile& file : weights->files())
      for (const auto& entry : file.entries()) {
        params += entry.elements;
        bytes += entry.end_byte - entry.begin_byte;
        ++count;
        if (options.json)
          tensors.push_back({{"name", entry.name}, {"dtype", entry.dtype_name}, {"shape", entry.shape}});
      }
  if (options.json) {
    fmt::print("{}", line_of(Json{{"kind", "model"},
                                  {"path", options.path.string()},
                                  {"whole", true},
                                  {"architecture", name_of(config.architecture)},
                                  {"params", params},
                                  {"bytes", bytes},
                                  {"weights", std::move(tensors)}}));
    return;
  }
  fmt::print("{}: a {} model; {} elements in {} tensors, {}\n", options.path.string(), name_of(config.architecture),
             params, count, format_size(bytes));
  fmt::print("  the files of a model carry no checksums: their {} are sound\n",
             weights ? "headers, sizes, names and shapes" : "headers and sizes");
  if (!options.tensors || !weights) return;
  for (const SafetensorsFile& file : weights->files())
    for (const auto& entry : file.entries()) print_tensor(entry.name, entry.dtype_name, entry.shape);
}

void inspect(const InspectOptions& options) {
  if (std::error_code ignored; !std::filesystem::is_directory(options.path, ignored))
    throw Error("{}: {}", options.path.string(), file_exists(options.path) ? "must be a directory" : "is not there");
  if (file_exists(options.path / kManifestName)) return inspect_checkpoint(options.path, options);
  if (const auto found = list_checkpoints(options.path); !found.empty()) return inspect_all(found, options);
  if (file_exists(options.path / "config.json")) return inspect_model(options);
  throw Error(
      "{}: neither a checkpoint (manifest.json) nor a directory of checkpoints (step-...) nor a model (config.json)",
      options.path.string());
}

}  // namespace

void add_inspect(CLI::App& program) {
  auto* command = program.add_subcommand(
      "inspect", "Show what a checkpoint, a directory of checkpoints or a model holds, and verify every checksum");
  const auto options = std::make_shared<InspectOptions>();
  command->add_option("PATH", options->path, "The directory")->required();
  command->add_flag("--tensors", options->tensors, "List every tensor");
  command->add_flag("--json", options->json, "One JSON object for each");
  command->footer("Example: zeepo inspect runs");
  command->callback([options] { inspect(*options); });
}

}  // namespace zeepo::cli
