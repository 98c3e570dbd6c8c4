// What the overlap measurements train: GPT-2 blocks, and blocks whose compute is a sleep of the same shape, which shows
// the schedule by itself where others use the same cores.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "zeepo/autograd/tape.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/model/language_model.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

inline constexpr std::int64_t kBlocks = 32;

class Subject {
 public:
  virtual ~Subject() = default;
  virtual Module& model() = 0;
  virtual Tensor loss() = 0;
};

class Gpt2Subject final : public Subject {
 public:
  static constexpr std::int64_t kPrefetchBytes = 4 << 20;  // two blocks
  Module& model() override { return *model_; }
  Tensor loss() override {
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(kBatch.elements()), 7);
    return model_->loss(Tensor::from<std::int32_t>(ids, kBatch), Tensor::from<std::int32_t>(ids, kBatch));
  }

 private:
  static ModelConfig config() {
    ModelConfig config;
    config.vocab = 512;  // so that the embedding is smaller than a block
    config.hidden = 192;
    config.intermediate = 4 * config.hidden;
    config.layers = kBlocks;
    config.heads = config.kv_heads = 3;
    config.head_dim = 64;
    config.max_positions = 128;
    config.activation = Activation::gelu_tanh;
    config.qkv_bias = config.output_bias = config.mlp_bias = config.tied_head = true;
    return config;
  }
  static inline const Shape kBatch{2, 128};
  std::unique_ptr<LanguageModel> model_ = make_model(config());
};

inline void sleep_milliseconds(double milliseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

// Takes time as a block does, twice as long backward, and hands its input on.
class SleepingBlock final : public Module {
 public:
  SleepingBlock() : weight_(parameter("weight", {1 << 17}, Init::ones())) {
    mark_unit();
    mark_checkpointable();
  }
  Tensor forward(const Tensor& x) override {
    sleep_milliseconds(kForwardMilliseconds);
    const Tensor weight = weight_;
    Tensor y(x.shape(), x.dtype());
    launch([&](auto& s) { copy(s, x.view(), y.view()); });
    if (Tape* tape = Tape::recording({&x, &weight}))
      tape->record({&y}, [dx = wanted_gradient(x), dweight = wanted_gradient(weight)](std::span<Tensor> dy) {
        sleep_milliseconds(2 * kForwardMilliseconds);
        launch([&](auto& s) { fill(s, dweight->target().tensor.view(), 1e-3f); });
        if (dx) dx->add(dy[0]);
      });
    return y;
  }

 private:
  static constexpr double kForwardMilliseconds = 6;
  Parameter& weight_;
};

class SleepingModel final : public Module {
 public:
  SleepingModel() {
    for (std::int64_t i = 0; i < kBlocks; ++i) blocks_.push_back(&child<SleepingBlock>(fmt::format("block.{}", i)));
  }
  Tensor forward(const Tensor& input) override {
    Tensor x = input;
    for (SleepingBlock* block : blocks_) x = (*block)(x);
    return x;
  }

 private:
  std::vector<SleepingBlock*> blocks_;
};

class SleepingSubject final : public Subject {
 public:
  static constexpr std::int64_t kPrefetchBytes = 1 << 20;  // two blocks
  Module& model() override { return model_; }
  Tensor loss() override {
    const std::vector<float> ones(kActivations, 1.0f);
    const Tensor last = model_.forward(Tensor::from<float>(ones, {static_cast<std::int64_t>(kActivations)}));
    Tensor loss({1}, DType::f32);
    launch([&](auto& s) { copy(s, last.part(0, {1}).view(), loss.view()); });
    if (Tape* tape = Tape::recording({&last}))
      tape->record({&loss}, [dx = wanted_gradient(last), shape = last.shape()](std::span<Tensor>) {
        const Tensor gradient(shape, DType::f32);
        launch([&](auto& s) { fill(s, gradient.view(), 1e-3f); });
        dx->add(gradient);
      });
    return loss;
  }

 private:
  static constexpr std::size_t kActivations = 1 << 16;  // of a block
  SleepingModel model_;
};

}  // namespace zeepo
