// What a checkpoint says of itself: manifest.json, sealed with its own checksum.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "zeepo/zero/engine.h"

namespace zeepo {

struct Manifest {
  struct Weight {
    std::string name;
    std::vector<std::int64_t> shape;
  };
  // A rank's safetensors file.
  struct StateFile {
    std::string name;
    std::int64_t bytes = 0;
    std::string header;                                        // checksum
    std::vector<std::pair<std::string, std::string>> tensors;  // name and checksum
  };
  // A file of the model's directory: config.json, the tokenizer.
  struct ModelFile {
    std::string name;
    std::int64_t bytes = 0;
    std::string checksum;
  };

  // The mean loss over the evaluation's data after a step.
  struct Evaluated {
    std::int64_t step = 0;
    double loss = 0;
  };

  std::int64_t step = 0;
  std::int64_t samples = 0;         // that the run has visited
  double loss = 0;                  // of the step
  std::optional<double> eval_loss;  // of the step, where it was evaluated
  std::optional<Evaluated> best;    // the lowest so far of the run
  EngineProgress progress = {};
  Depths depths = {};      // of the tuner
  int ranks = 1;           // that wrote it
  std::vector<int> nodes;  // of each rank, for sums that depend on it; empty: not known
  struct Balance {
    std::vector<double> speeds;
    std::vector<std::int64_t> rows;
  } balance;                                   // of each rank, with --balance; empty: shares were alike
  std::size_t moments = 0;                     // of each trained weight
  std::string dtype;                           // of the run
  std::map<std::string, std::string> options;  // names and texts, as the run was asked
  std::map<std::string, std::string> origin;   // checksums and sizes of model and data
  std::vector<Weight> weights;                 // by name
  std::vector<StateFile> files;
  std::vector<ModelFile> model_files;  // in the folder "model"
};

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kModelFolder = "model";

std::string text_of(const Manifest& manifest);
// Throws Error starting with `what` for a text that is damaged or not a manifest.
Manifest parse_manifest(std::string_view text, const std::string& what);
// The list that a rank has written beside its file.
Manifest::StateFile parse_file_list(std::string_view text, const std::string& what);

}  // namespace zeepo
