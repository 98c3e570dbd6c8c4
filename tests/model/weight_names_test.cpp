// Files as people have them: with and without the body's prefix, with buffers that are no weights, with a copy of a
// tied head; and files that do not fit.
#include "zeepo/model/weight_names.h"

#include <functional>

#include "tests/support/errors.h"
#include "tests/support/hand_loaded.h"
#include "tests/support/test_data.h"
#include "tests/support/test_directory.h"
#include "zeepo/model/safetensors_writer.h"

namespace zeepo {
namespace {

struct StoredTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
using Stored = std::map<std::string, StoredTensor>;

Stored read_all(const std::string& model) {
  const WeightFiles files(golden(model));
  Stored tensors;
  for (const auto& name : files.names()) {
    const auto& entry = files.at(name);
    StoredTensor tensor{entry.shape, std::vector<float>(static_cast<std::size_t>(entry.elements))};
    files.read(name, 0, tensor.values);
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

void write_model(const TestDirectory& directory, const std::string& config_of, const Stored& tensors) {
  std::filesystem::copy_file(golden(config_of) / "config.json", directory.path() / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  std::vector<SafetensorsWriter::Tensor> table;
  for (const auto& [name, tensor] : tensors) table.push_back({name, DType::f32, tensor.shape});
  SafetensorsWriter writer(directory.path() / "model.safetensors", table);
  for (const auto& tensor : writer.tensors()) writer.write(tensors.at(tensor.name).values);
  writer.commit();
}

Stored without_prefix(const Stored& tensors, const std::string& prefix) {
  Stored bare;
  for (const auto& [name, tensor] : tensors)
    bare.emplace(name.starts_with(prefix) ? name.substr(prefix.size()) : name, tensor);
  return bare;
}

StoredTensor filled(std::vector<std::int64_t> shape, float value) {
  std::int64_t count = 1;
  for (const auto extent : shape) count *= extent;
  return {std::move(shape), std::vector<float>(static_cast<std::size_t>(count), value)};
}

const std::vector<std::int32_t> kIds{1, 50, 3, 200, 7};

// The files give the same model as the golden's own.
void expect_same_model(const std::string& model, const std::function<void(Stored&)>& change) {
  TestDevice device;
  const TestDirectory directory;
  Stored tensors = read_all(model);
  change(tensors);
  write_model(directory, model, tensors);
  EXPECT_EQ(logits_of(*model_from(directory.path()), kIds), logits_of(*model_from(golden(model)), kIds));
}

TEST(WeightNames, TheFirstGpt2HasNoPrefixAndStoresItsMasks) {
  expect_same_model("gpt2-tiny", [](Stored& tensors) {
    tensors = without_prefix(tensors, "transformer.");
    for (const std::string layer : {"h.0", "h.1"}) {
      tensors.emplace(layer + ".attn.bias", filled({1, 1, 128, 128}, 1));
      tensors.emplace(layer + ".attn.masked_bias", filled({}, -1e4f));
    }
  });
}

TEST(WeightNames, MasksArePassedOverWithThePrefixToo) {
  expect_same_model("gpt2-tiny", [](Stored& tensors) {
    tensors.emplace("transformer.h.1.attn.bias", filled({1, 1, 128, 128}, 1));
  });
}

TEST(WeightNames, OlderLlamasStoreInverseFrequencies) {
  expect_same_model("llama-tiny", [](Stored& tensors) {
    for (const std::string layer : {"0", "1"})
      tensors.emplace("model.layers." + layer + ".self_attn.rotary_emb.inv_freq", filled({4}, 1));
  });
}

TEST(WeightNames, AStoredCopyOfATiedHeadIsPassedOver) {
  expect_same_model("gpt2-tiny", [](Stored& tensors) { tensors.emplace("lm_head.weight", filled({256, 32}, 7)); });
  expect_same_model("qwen2-tiny", [](Stored& tensors) { tensors.emplace("lm_head.weight", filled({256, 32}, 7)); });
}

TEST(WeightNames, ABareLlamaBodyIsUnderstood) {
  expect_same_model("llama-tiny", [](Stored& tensors) { tensors = without_prefix(tensors, "model."); });
  expect_same_model("qwen2-tiny", [](Stored& tensors) { tensors = without_prefix(tensors, "model."); });
}

std::string error_with(const std::string& model, const std::function<void(Stored&)>& change) {
  TestDevice device;
  const TestDirectory directory;
  Stored tensors = read_all(model);
  change(tensors);
  write_model(directory, model, tensors);
  return error_text([&] { (void)model_from(directory.path()); });
}

TEST(WeightNames, MissingTensorsAreNamed) {
  const auto one = error_with("llama-tiny", [](Stored& t) { t.erase("model.layers.1.mlp.up_proj.weight"); });
  EXPECT_TRUE(names(one, "missing 1 of"));
  EXPECT_TRUE(names(one, "model.layers.1.mlp.up_proj.weight"));
  const auto head = error_with("llama-tiny", [](Stored& t) { t.erase("lm_head.weight"); });
  EXPECT_TRUE(names(head, "lm_head.weight"));
  const auto many = error_with("gpt2-tiny", [](Stored& t) {
    for (const char* name : {"transformer.wte.weight", "transformer.h.0.ln_1.bias", "transformer.h.1.mlp.c_fc.weight",
                             "transformer.ln_f.weight"})
      t.erase(name);
  });
  EXPECT_TRUE(names(many, "missing 4 of"));
  EXPECT_TRUE(names(many, "and 1 more"));
}

TEST(WeightNames, UnknownTensorsAreNamed) {
  for (const std::string name : {"transformer.h.2.ln_1.weight", "score.weight", "transformer.h.0.attn.c_attn.lora"}) {
    const auto text = error_with("gpt2-tiny", [&](Stored& t) { t.emplace(name, filled({32}, 1)); });
    EXPECT_TRUE(names(text, name));
    EXPECT_TRUE(names(text, "gpt2"));
  }
  // A head that config.json ties is a copy; one that the model has as its own bias is not.
  EXPECT_TRUE(
      names(error_with("qwen2-tiny", [](Stored& t) { t.emplace("lm_head.bias", filled({256}, 1)); }), "lm_head.bias"));
}

TEST(WeightNames, MisshapenTensorsAreNamedWithBothShapes) {
  const auto text = error_with("gpt2-tiny", [](Stored& t) {
    t.at("transformer.h.1.attn.c_attn.weight") = filled({96, 32}, 1);
  });
  EXPECT_TRUE(names(text, "transformer.h.1.attn.c_attn.weight"));
  EXPECT_TRUE(names(text, "(96, 32)"));
  EXPECT_TRUE(names(text, "(32, 96)"));
  const auto slice = error_with("llama-tiny", [](Stored& t) {
    t.at("model.layers.0.self_attn.k_proj.weight") = filled({32, 32}, 1);
  });
  EXPECT_TRUE(names(slice, "model.layers.0.self_attn.k_proj.weight"));
  EXPECT_TRUE(names(slice, "(16, 32)"));
}

}  // namespace
}  // namespace zeepo
