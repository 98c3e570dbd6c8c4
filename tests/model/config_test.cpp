#include "zeepo/model/config.h"
#include "tests/support/places.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/test_data.h"
#include "tests/support/test_directory.h"
#include "zeepo/base/file.h"
#include "zeepo/model/config_sizes.h"

namespace zeepo {
namespace {

using Sizes = std::vector<std::int64_t>;

ModelConfig known(const std::string& name) {
  return parse_config(read_text(std::filesystem::path(kTestData) / "configs" / (name + ".json")), name);
}

// vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, max_positions
Sizes sizes_of(const ModelConfig& c) {
  return {c.vocab, c.hidden, c.intermediate, c.layers, c.heads, c.kv_heads, c.head_dim, c.max_positions};
}

ModelConfig parse(const std::string& type, const std::string& rest = "") {
  return parse_config(R"({"model_type":")" + type + '"' + (rest.empty() ? "" : "," + rest) + "}");
}

std::string fault(const std::string& type, const std::string& rest) {
  return error_text([&] { parse(type, rest); });
}

bool all_windows_are(const ModelConfig& config, std::int64_t window) {
  return config.windows == Sizes(static_cast<std::size_t>(config.layers), window);
}

TEST(Config, KnowsTheSizesOfKnownModels) {
  const std::map<std::string, Sizes> expected{
      {"gpt2", {50257, 768, 3072, 12, 12, 12, 64, 1024}},
      {"llama-2-7b", {32000, 4096, 11008, 32, 32, 32, 128, 4096}},
      {"llama-3-8b", {128256, 4096, 14336, 32, 32, 8, 128, 8192}},
      {"llama-3.2-1b", {128256, 2048, 8192, 16, 32, 8, 64, 131072}},
      {"qwen2.5-0.5b", {151936, 896, 4864, 24, 14, 2, 64, 32768}},
      {"qwen2.5-3b", {151936, 2048, 11008, 36, 16, 2, 128, 32768}},
      {"qwen2.5-7b", {151936, 3584, 18944, 28, 28, 4, 128, 131072}},
      {"qwen2.5-14b", {151936, 5120, 13824, 48, 40, 8, 128, 131072}},
      {"qwen3-0.6b", {151936, 1024, 3072, 28, 16, 8, 128, 40960}},
      {"mistral-7b-v0.1", {32000, 4096, 14336, 32, 32, 8, 128, 32768}},
      {"mistral-7b-v0.3", {32768, 4096, 14336, 32, 32, 8, 128, 32768}},
      {"tinyllama-1.1b", {32000, 2048, 5632, 22, 32, 4, 64, 2048}},
      {"smollm2-135m", {49152, 576, 1536, 30, 9, 3, 64, 8192}},
  };
  for (const auto& [name, sizes] : expected) EXPECT_EQ(sizes_of(known(name)), sizes) << name;
}

TEST(Config, ReadsGpt2) {
  const ModelConfig config = known("gpt2");
  EXPECT_EQ(config.activation, Activation::gelu_tanh);
  EXPECT_TRUE(config.qkv_bias && config.output_bias && config.mlp_bias && config.tied_head);
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-5f);
  EXPECT_FLOAT_EQ(config.embed_dropout, 0.1f);
  EXPECT_FLOAT_EQ(config.attention_scale(3), 0.125f);
  EXPECT_EQ(config.eos, (std::vector<std::int32_t>{50256}));
  EXPECT_EQ(config.dtype, std::nullopt);
  EXPECT_TRUE(all_windows_are(config, 0));
}

TEST(Config, ReadsLlama3Scaling) {
  const ModelConfig config = known("llama-3.2-1b");
  EXPECT_TRUE(config.tied_head);
  EXPECT_EQ(config.rope.scaling, RopeConfig::Scaling::llama3);
  EXPECT_EQ(config.rope.theta, 500000.0);
  EXPECT_EQ(config.rope.factor, 32.0);
  EXPECT_EQ(config.rope.original_max_positions, 8192);
  EXPECT_EQ(config.eos, (std::vector<std::int32_t>{128001, 128008, 128009}));
  EXPECT_EQ(config.dtype, DType::bf16);
}

TEST(Config, TellsTheLlamaFamilyApart) {
  const auto biases = [](const ModelConfig& c) {
    return std::vector{c.qkv_bias, c.output_bias, c.mlp_bias, c.qk_norm};
  };
  EXPECT_EQ(biases(known("llama-2-7b")), (std::vector{false, false, false, false}));
  EXPECT_EQ(biases(known("qwen2.5-7b")), (std::vector{true, false, false, false}));
  EXPECT_EQ(biases(known("qwen3-0.6b")), (std::vector{false, false, false, true}));
  EXPECT_EQ(biases(known("mistral-7b-v0.1")), (std::vector{false, false, false, false}));
  EXPECT_EQ(biases(parse("llama", R"("attention_bias":true,"mlp_bias":true)")), (std::vector{true, true, true, false}));
  EXPECT_EQ(biases(parse("qwen3", R"("attention_bias":true)")), (std::vector{true, true, false, true}));
  EXPECT_EQ(biases(parse("qwen2", R"("attention_bias":false)")), (std::vector{true, false, false, false}));
}

TEST(Config, GivesAbsentKeysTransformersDefaults) {
  EXPECT_EQ(sizes_of(parse("gpt2")), (Sizes{50257, 768, 3072, 12, 12, 12, 64, 1024}));
  EXPECT_EQ(sizes_of(parse("llama")), (Sizes{32000, 4096, 11008, 32, 32, 32, 128, 2048}));
  EXPECT_EQ(sizes_of(parse("qwen2")), (Sizes{151936, 4096, 22016, 32, 32, 32, 128, 32768}));
  EXPECT_EQ(sizes_of(parse("qwen3")), (Sizes{151936, 4096, 22016, 32, 32, 32, 128, 32768}));
  EXPECT_EQ(sizes_of(parse("mistral")), (Sizes{32000, 4096, 14336, 32, 32, 8, 128, 131072}));
  EXPECT_EQ(parse("qwen3", R"("hidden_size":64,"num_attention_heads":32)").head_dim, 128);
  EXPECT_EQ(parse("llama", R"("num_attention_heads":16)").kv_heads, 16);
  EXPECT_EQ(parse("qwen2", R"("num_attention_heads":16,"num_key_value_heads":null)").kv_heads, 16);
  EXPECT_TRUE(parse("gpt2").tied_head);
  for (const char* type : {"llama", "qwen2", "qwen3", "mistral"}) {
    EXPECT_FALSE(parse(type).tied_head) << type;
    EXPECT_FLOAT_EQ(parse(type).norm_eps, 1e-6f) << type;
    EXPECT_EQ(parse(type).rope.theta, 10000.0) << type;
  }
  EXPECT_EQ(parse("mistral").eos, (std::vector<std::int32_t>{2}));
  EXPECT_TRUE(parse("qwen2").eos.empty());
  EXPECT_TRUE(parse("gpt2", R"("eos_token_id":null)").eos.empty());
}

TEST(Config, ReadsWindows) {
  EXPECT_TRUE(all_windows_are(parse("mistral"), 4096));
  EXPECT_TRUE(all_windows_are(known("mistral-7b-v0.1"), 4096));
  EXPECT_TRUE(all_windows_are(known("mistral-7b-v0.3"), 0));
  EXPECT_TRUE(all_windows_are(known("qwen2.5-7b"), 0));
  EXPECT_TRUE(all_windows_are(parse("llama", R"("sliding_window":7)"), 0));
  const std::string four = R"("num_hidden_layers":4,"use_sliding_window":true,"sliding_window":9)";
  EXPECT_EQ(parse("qwen2", four + R"(,"max_window_layers":3)").windows, (Sizes{0, 0, 0, 9}));
  EXPECT_EQ(parse("qwen3", four + R"(,"max_window_layers":0)").windows, (Sizes{9, 9, 9, 9}));
  EXPECT_EQ(parse("qwen3", four).windows, (Sizes{0, 0, 0, 0}));
  const std::string types = R"("layer_types":["full_attention","sliding_attention"],"num_hidden_layers":2)";
  EXPECT_EQ(parse("qwen3", types + R"(,"use_sliding_window":true)").windows, (Sizes{0, 4096}));
  EXPECT_TRUE(names(fault("qwen3", types), "use_sliding_window is false"));
  EXPECT_TRUE(names(fault("qwen2", R"("layer_types":["full_attention"])"), "each of the 32 layers"));
  EXPECT_TRUE(names(fault("qwen2", R"("num_hidden_layers":1,"layer_types":["conv"])"), "\"conv\": not supported"));
  EXPECT_TRUE(names(fault("qwen2", R"("num_hidden_layers":1,"layer_types":[1])"), "layer_types: 1: not supported"));
  EXPECT_TRUE(names(fault("mistral", R"("sliding_window":0)"), "sliding_window: 0"));
}

TEST(Config, ReadsBothSpellings) {
  for (const char* section :
       {R"("rope_theta":5000,"rope_scaling":{"type":"linear","factor":2})",
        R"("rope_theta":5000,"rope_scaling":{"rope_type":"linear","factor":2})",
        R"("rope_parameters":{"rope_type":"linear","factor":2.0,"rope_theta":5000})",
        R"("rope_theta":1,"rope_parameters":{"rope_type":"linear","factor":2.0,"rope_theta":5000})",
        R"("rope_theta":5000,"rope_scaling":{},"rope_parameters":{"type":"linear","factor":2})"}) {
    const RopeConfig rope = parse("llama", section).rope;
    EXPECT_EQ(rope.scaling, RopeConfig::Scaling::linear) << section;
    EXPECT_EQ(rope.theta, 5000) << section;
    EXPECT_EQ(rope.factor, 2) << section;
  }
  EXPECT_EQ(parse("llama", R"("torch_dtype":"float16")").dtype, DType::f16);
  EXPECT_EQ(parse("llama", R"("dtype":"bfloat16","torch_dtype":"float16")").dtype, DType::bf16);
  EXPECT_EQ(parse("llama", R"("torch_dtype":"float64")").dtype, std::nullopt);
}

TEST(Config, LoadsTheGoldens) {
  for (const char* name :
       {"gpt2-tiny", "llama-tiny", "qwen2-tiny", "qwen3-tiny", "mistral-tiny", "llama-old-spelling"}) {
    const ModelConfig config = load_config(golden(name));
    EXPECT_EQ(config.hidden, 32) << name;
    EXPECT_EQ(config.layers, 2) << name;
    EXPECT_EQ(config.dtype, DType::f32) << name;
    EXPECT_FLOAT_EQ(config.init_range, 0.12f) << name;
    EXPECT_TRUE(all_windows_are(config, 0)) << name;
  }
  const ModelConfig old = load_config(golden("llama-old-spelling"));
  EXPECT_EQ(old.rope.theta, 5000.0);
  EXPECT_EQ(old.rope.scaling, RopeConfig::Scaling::linear);
  EXPECT_TRUE(old.qkv_bias && old.output_bias && !old.mlp_bias);
  EXPECT_EQ(load_config(golden("qwen3-tiny")).head_dim, 16);
}

TEST(Config, TakesEndTokensFromTheGenerationConfig) {
  const TestDirectory directory;
  directory.write("config.json", R"({"model_type":"llama","eos_token_id":128001})");
  EXPECT_EQ(load_config(directory.path()).eos, (std::vector<std::int32_t>{128001}));
  directory.write("generation_config.json", R"({"eos_token_id":[128001,128009]})");
  EXPECT_EQ(load_config(directory.path()).eos, (std::vector<std::int32_t>{128001, 128009}));
  directory.write("generation_config.json", R"({"eos_token_id":null})");
  EXPECT_EQ(load_config(directory.path()).eos, (std::vector<std::int32_t>{128001}));
  directory.write("generation_config.json", R"({"eos_token_id":"x"})");
  EXPECT_TRUE(names(error_text([&] { load_config(directory.path()); }), "generation_config.json: eos_token_id: \"x\""));
  std::filesystem::remove(directory.path() / "config.json");
  EXPECT_TRUE(names(error_text([&] { load_config(directory.path()); }), "config.json: No such file"));
}

TEST(Config, ReadsGpt2Variants) {
  EXPECT_EQ(parse("gpt2", R"("activation_function":"gelu")").activation, Activation::gelu_erf);
  EXPECT_EQ(parse("gpt2", R"("activation_function":"gelu_pytorch_tanh")").activation, Activation::gelu_tanh);
  EXPECT_EQ(parse("gpt2", R"("activation_function":"relu")").activation, Activation::relu);
  EXPECT_EQ(parse("gpt2", R"("activation_function":"swish")").activation, Activation::silu);
  EXPECT_EQ(parse("gpt2", R"("n_inner":100)").intermediate, 100);
  EXPECT_EQ(parse("gpt2", R"("n_inner":null,"n_embd":24)").intermediate, 96);
  EXPECT_EQ(parse("gpt2", R"("n_embd":24,"hidden_size":48)").hidden, 48);
  EXPECT_EQ(parse("gpt2", R"("scale_attn_weights":false)").attention_scale(1), 1.0f);
  EXPECT_FLOAT_EQ(parse("gpt2", R"("scale_attn_by_inverse_layer_idx":true)").attention_scale(1), 0.0625f);
}

TEST(Config, RefusesWhatItWouldComputeDifferently) {
  EXPECT_TRUE(names(fault("mamba", ""), "model_type: \"mamba\""));
  EXPECT_TRUE(names(fault("mamba", ""), "gpt2, llama, qwen2, qwen3, mistral"));
  EXPECT_TRUE(names(error_text([] { parse_config("{}"); }), "model_type: absent"));
  EXPECT_TRUE(names(fault("llama", R"("quantization_config":{"quant_method":"gptq"})"), "quantization_config"));
  EXPECT_TRUE(names(fault("llama", R"("is_causal":false)"), "is_causal: false"));
  EXPECT_TRUE(names(fault("llama", R"("hidden_act":"gelu")"), "hidden_act: \"gelu\""));
  EXPECT_TRUE(names(fault("gpt2", R"("activation_function":"mish")"), "activation_function: \"mish\""));
  EXPECT_TRUE(names(fault("gpt2", R"("add_cross_attention":true)"), "add_cross_attention: true"));
  EXPECT_TRUE(names(fault("llama", R"("partial_rotary_factor":0.5)"), "partial_rotary_factor: 0.5"));
  EXPECT_TRUE(names(fault("llama", R"("rope_parameters":{"partial_rotary_factor":0.5})"), "factor: 0.5"));
  for (const char* type : {"yarn", "dynamic", "longrope", "su", "proportional"})
    EXPECT_TRUE(names(fault("qwen2", fmt::format(R"("rope_scaling":{{"type":"{}","factor":4}})", type)),
                      fmt::format("rope_scaling.type: \"{}\": not supported", type)));
  EXPECT_TRUE(names(fault("qwen2", R"("rope_parameters":{"full_attention":{"rope_type":"default"}})"),
                    "rope_parameters.full_attention"));
}

TEST(Config, RefusesSizesThatDoNotFit) {
  EXPECT_TRUE(names(fault("llama", R"("num_key_value_heads":5)"), "num_attention_heads: 32: must be a multiple"));
  EXPECT_TRUE(names(fault("gpt2", R"("n_head":5)"), "n_embd: 768: must be a multiple of n_head, 5"));
  EXPECT_TRUE(names(fault("llama", R"("hidden_size":100)"), "hidden_size: 100: must be a multiple"));
  EXPECT_TRUE(names(fault("llama", R"("head_dim":7)"), "head_dim: 7: must be even"));
  EXPECT_TRUE(names(fault("llama", R"("hidden_size":1048576,"head_dim":1048576,"num_hidden_layers":8192)"),
                    "parameters, more than"));
  EXPECT_TRUE(names(fault("llama", R"("num_hidden_layers":8193)"), "num_hidden_layers: 8193", "8192"));
  for (const char* value : {"0", "-1", "1.5", "12.0", "null", "\"12\"", "true", "[12]", "9223372036854775807",
                            "18446744073709551615", "99999999999999999999", "1e3"})
    for (const char* key : {"num_hidden_layers", "hidden_size", "vocab_size", "max_position_embeddings"})
      EXPECT_TRUE(names(fault("llama", fmt::format(R"("{}":{})", key, value)), fmt::format("{}: ", key))) << value;
}

// Of a shape that comes from elsewhere: the caller's names are in the error.
TEST(Config, ChecksShapesThatNoFileHas) {
  const ModelConfig good = parse_config(R"({"model_type": "gpt2"})");
  const SizeNames options{"--layers", "--hidden", "--heads", "--vocab", "--seq-len"};
  EXPECT_NO_THROW(check(good, "plan", options));
  const auto error_of = [&](std::int64_t ModelConfig::*field, std::int64_t value) {
    ModelConfig config = good;
    config.*field = value;
    return error_text([&] { check(config, "plan", options); });
  };
  EXPECT_TRUE(names(error_of(&ModelConfig::layers, 8193), "plan: --layers 8193: must be from 1 to 8192"));
  EXPECT_TRUE(names(error_of(&ModelConfig::hidden, (1 << 20) + 1), "--hidden 1048577"));
  EXPECT_TRUE(names(error_of(&ModelConfig::heads, 0), "--heads 0"));
  EXPECT_TRUE(names(error_of(&ModelConfig::vocab, std::int64_t{1} << 31), "--vocab 2147483648"));
  EXPECT_TRUE(names(error_of(&ModelConfig::max_positions, std::int64_t{1} << 31), "--seq-len 2147483648"));
}

TEST(Config, RefusesValuesOfTheWrongKind) {
  EXPECT_TRUE(names(error_text([] { parse_config("[]"); }), "must be a JSON object"));
  EXPECT_TRUE(names(error_text([] { parse_config(""); }), "not JSON"));
  EXPECT_TRUE(names(error_text([] { parse_config(R"({"model_type":3})"); }), "model_type: 3"));
  EXPECT_TRUE(names(fault("llama", R"("rms_norm_eps":NaN)"), "not JSON"));
  EXPECT_TRUE(names(fault("llama", R"("rms_norm_eps":-1e-5)"), "rms_norm_eps: -1e-05"));
  EXPECT_TRUE(names(fault("llama", R"("rms_norm_eps":"1e-5")"), "rms_norm_eps: \"1e-5\""));
  EXPECT_TRUE(names(fault("llama", R"("tie_word_embeddings":1)"), "tie_word_embeddings: 1"));
  EXPECT_TRUE(names(fault("llama", R"("attention_dropout":1)"), "attention_dropout: 1"));
  EXPECT_TRUE(names(fault("llama", R"("rope_theta":0)"), "rope_theta: 0"));
  EXPECT_TRUE(names(fault("llama", R"("rope_theta":"1")"), "rope_theta: \"1\""));
  EXPECT_TRUE(names(fault("llama", R"("rope_scaling":3)"), "rope_scaling: 3"));
  EXPECT_TRUE(names(fault("llama", R"("rope_scaling":{"type":3})"), "rope_scaling.type: 3"));
  EXPECT_TRUE(names(fault("llama", R"("rope_scaling":{"type":"linear"})"), "rope_scaling.factor: absent"));
  EXPECT_TRUE(names(fault("llama", R"("rope_scaling":{"type":"llama3","factor":8,"low_freq_factor":4,
                                      "high_freq_factor":4})"),
                    "rope_scaling.high_freq_factor: 4"));
  EXPECT_TRUE(names(fault("llama", R"("eos_token_id":[1,-2])"), "eos_token_id: [1,-2]"));
  EXPECT_TRUE(names(fault("llama", R"("eos_token_id":2147483648)"), "eos_token_id: 2147483648"));
  EXPECT_TRUE(names(fault("llama", R"("torch_dtype":16)"), "torch_dtype: 16"));
  EXPECT_TRUE(names(fault("llama", R"("vocab_size":5,"vocab_size":5)"), "\"vocab_size\" is given twice"));
}

}  // namespace
}  // namespace zeepo
