// The golden models, and runs of them through an engine as `zeepo train --no-shuffle` makes them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/places.h"
#include "zeepo/autograd/random_state.h"
#include "zeepo/base/file.h"
#include "zeepo/binding/model_engine.h"
#include "zeepo/data/token_file.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/model/language_model.h"
#include "zeepo/model/safetensors.h"
#include "zeepo/model/weight_files.h"
#include "zeepo/zero/session.h"

namespace zeepo {

struct Golden {
  explicit Golden(std::filesystem::path where)
      : directory(std::move(where)),
        values(nlohmann::json::parse(read_text(directory / "golden.json"))),
        config(load_config(directory)) {}

  OptimizerOptions optimizer() const {
    const auto& o = values.at("optimizer");
    return {.type = OptimizerType::adamw,
            .beta1 = o.at("betas").at(0),
            .beta2 = o.at("betas").at(1),
            .eps = o.at("eps"),
            .weight_decay = o.at("weight_decay")};
  }
  double lr() const { return values.at("optimizer").at("lr"); }
  std::int64_t seq() const { return values.at("seq"); }
  std::int64_t batch() const { return values.at("batch"); }
  std::int64_t steps() const { return values.at("steps"); }

  std::filesystem::path directory;
  nlohmann::json values;
  ModelConfig config;
};

// "golden/gpt2-tiny", "golden-extra/llama3-rope", ...: every directory with a golden.json.
inline std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const char* folder : {"golden", "golden-extra"}) {
    const auto parent = std::filesystem::path(kTestData) / folder;
    if (!std::filesystem::exists(parent)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(parent))
      if (std::filesystem::exists(entry.path() / "golden.json"))
        names.push_back(std::string(folder) + "/" + entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline Golden load_golden(const std::string& name) { return Golden(std::filesystem::path(kTestData) / name); }

// "golden/gpt2-tiny" as a test's name.
inline std::string golden_test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(info.param.find('/') + 1);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

struct GoldenRun {
  std::int64_t steps = 0;         // 0: the golden's
  std::int64_t accumulation = 1;  // micro-steps a step; the batch is the golden's all the same
  double lr = -1;                 // negative: the golden's
  int threads = 2;
  DType dtype = DType::f32;
  bool activation_checkpointing = false;
  float dropout = 0;
  float clip = 1;
  LossScale::Options loss_scale = {};
  std::optional<OptimizerOptions> optimizer = {};  // else the golden's
};

struct GoldenResult {
  std::vector<float> losses, norms, scales;
  std::vector<bool> skipped;
  std::vector<std::string> hashes;  // of the weights, before the first step and after each
  std::map<std::string, std::vector<float>> weights;
  std::vector<Usage> peaks;    // of each step
  std::vector<Usage> in_use;   // after each step
  std::size_t high_water = 0;  // of the device's arena, once the weights were loaded
};

// One micro-step on rows [first_row, ...) of a step's batch.
inline void golden_micro_step(ModelEngine& engine, LanguageModel& model, const TokenFile& tokens, const Golden& golden,
                              std::int64_t first_row, std::int64_t rows, std::uint64_t dropout_salt) {
  const std::int64_t length = golden.seq(), count = (tokens.tokens() - 1) / length;
  std::vector<std::int32_t> ids, targets, sample(static_cast<std::size_t>(length + 1));
  for (std::int64_t b = 0; b < rows; ++b) {
    tokens.read((first_row + b) % count * length, sample);
    ids.insert(ids.end(), sample.begin(), sample.end() - 1);
    targets.insert(targets.end(), sample.begin() + 1, sample.end());
  }
  RandomState::current() = {.key = mix(RngKey{99}, dropout_salt), .next = 0, .training = true};
  const Shape shape{rows, length};
  engine.micro_step(
      [&] { return model.loss(Tensor::from<std::int32_t>(ids, shape), Tensor::from<std::int32_t>(targets, shape)); });
  RandomState::current() = {};
}

inline EngineOptions engine_options(const Golden& golden, const GoldenRun& run) {
  return {.dtype = run.dtype,
          .optimizer = run.optimizer.value_or(golden.optimizer()),
          .accumulation = run.accumulation,
          .clip = run.clip,
          .activation_checkpointing = run.activation_checkpointing,
          .loss_scale = run.loss_scale};
}

inline ModelConfig with_dropout(ModelConfig config, float dropout) {
  config.embed_dropout = config.residual_dropout = config.attention_dropout = dropout;
  return config;
}

inline GoldenResult train_golden(const Golden& golden, const GoldenRun& run = {}) {
  Session session({.threads = run.threads, .device_bytes = std::int64_t{1} << 28});
  const auto model = make_model(with_dropout(golden.config, run.dropout));
  ModelEngine engine(*model, session.communicator(), engine_options(golden, run));
  const WeightFiles files(golden.directory);
  engine.load(stored_weights(golden.config, engine.slices(), files));
  const TokenFile tokens(golden.directory / "tokens.bin", golden.config.vocab);

  GoldenResult result;
  result.hashes.push_back(engine.weights_hash());
  const std::int64_t steps = run.steps > 0 ? run.steps : golden.steps(), rows = golden.batch() / run.accumulation;
  for (std::int64_t step = 0; step < steps; ++step) {
    session.memory().restart_peak();
    for (std::int64_t m = 0; m < run.accumulation; ++m)
      golden_micro_step(engine, *model, tokens, golden, step * golden.batch() + m * rows, rows,
                        static_cast<std::uint64_t>(step * run.accumulation + m));
    const StepResult done = engine.step(run.lr >= 0 ? run.lr : golden.lr());
    result.losses.push_back(done.loss);
    result.norms.push_back(done.grad_norm);
    result.scales.push_back(done.loss_scale);
    result.skipped.push_back(done.skipped);
    result.peaks.push_back(session.memory().peak());
    result.in_use.push_back(session.memory().current());
    result.hashes.push_back(engine.weights_hash());
  }
  result.high_water = session.memory().high_water();
  for (const auto& slice : engine.slices()) {
    auto& values = result.weights[slice.name];
    values.resize(static_cast<std::size_t>(slice.shape.elements()));
    engine.read(slice.name, 0, values);
  }
  return result;
}

inline std::vector<float> read_tensor(const SafetensorsFile& file, const std::string& name) {
  const auto& entry = file.at(name);
  std::vector<float> values(static_cast<std::size_t>(entry.elements));
  file.read(entry, 0, values);
  return values;
}

}  // namespace zeepo
