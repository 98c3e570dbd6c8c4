#include "zeepo/model/model_directory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <set>

#include "tests/support/errors.h"
#include "tests/support/test_data.h"
#include "tests/support/test_directory.h"
#include "zeepo/base/file.h"
#include "zeepo/model/config.h"
#include "zeepo/model/weight_files.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

Names files_in(const fs::path& directory) {
  Names names;
  for (const auto& file : fs::directory_iterator(directory)) names.insert(file.path().filename().string());
  return names;
}

// A golden's tensors in the order of transformers' modules, and their values.
struct Model {
  explicit Model(const std::string& name) : directory(golden(name)), weights(directory) {
    add("model.embed_tokens.weight");
    for (const char* layer : {"model.layers.0.", "model.layers.1."})
      for (const char* part :
           {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
            "mlp.up_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm"})
        add(std::string(layer) + part + ".weight");
    add("model.norm.weight");
    add("lm_head.weight");
  }
  void add(const std::string& name) { tensors.push_back({name, weights.at(name).shape}); }
  TensorReader reader() const {
    return
        [this](const std::string& name, std::int64_t begin, std::span<float> out) { weights.read(name, begin, out); };
  }
  void save(const fs::path& target, const ModelDirectoryOptions& options = {}) const {
    write_model_directory(directory, target, tensors, reader(), options);
  }

  fs::path directory;
  WeightFiles weights;
  std::vector<ModelTensor> tensors;
};

const Names kSingle{"config.json", "generation_config.json", "model.safetensors"};
const Names kSharded{"config.json",
                     "generation_config.json",
                     "model.safetensors.index.json",
                     "model-00001-of-00003.safetensors",
                     "model-00002-of-00003.safetensors",
                     "model-00003-of-00003.safetensors"};

TEST(ModelDirectory, IsWhatTransformersWrote) {
  const TestDirectory directory;
  Model("llama-tiny").save(directory.path() / "out");
  EXPECT_EQ(files_in(directory.path() / "out"), kSingle);
  for (const std::string& name : kSingle)
    EXPECT_EQ(read_text(directory.path() / "out" / name), read_text(golden("llama-tiny") / name)) << name;
}

TEST(ModelDirectory, IsWhatTransformersWroteInShards) {
  const TestDirectory directory;
  Model("mistral-tiny").save(directory.path() / "out", {.shard_bytes = 60'000});
  ASSERT_EQ(files_in(directory.path() / "out"), kSharded);
  for (const std::string& name : kSharded)
    EXPECT_EQ(read_text(directory.path() / "out" / name), read_text(golden("mistral-tiny") / name)) << name;
}

TEST(ModelDirectory, ReadsBackInAnotherDtype) {
  const TestDirectory directory;
  const Model model("llama-tiny");
  model.save(directory.path() / "out", {.dtype = DType::bf16});
  const WeightFiles saved(directory.path() / "out");
  EXPECT_EQ(load_config(directory.path() / "out").dtype, DType::bf16);
  std::vector<float> before(256 * 32), after(256 * 32);
  model.weights.read("lm_head.weight", 0, before);
  saved.read("lm_head.weight", 0, after);
  EXPECT_EQ(saved.at("lm_head.weight").dtype, DType::bf16);
  for (std::size_t i = 0; i < before.size(); ++i) ASSERT_EQ(after[i], to_float(from_float<bf16>(before[i])));
}

TEST(ModelDirectory, AsksForBoundedPieces) {
  const TestDirectory directory;
  directory.write("config.json", R"({"model_type":"gpt2"})");
  std::vector<std::pair<std::int64_t, std::size_t>> asked;
  write_model_directory(
      directory.path(), directory.path() / "deep" / "er" / "out/", {{"w", {2, kWritePieceElements}}, {"e", {0}}},
      [&](const std::string&, std::int64_t begin, std::span<float> out) { asked.emplace_back(begin, out.size()); },
      {.dtype = DType::f16});
  const auto piece = static_cast<std::size_t>(kWritePieceElements);
  EXPECT_EQ(asked, (std::vector<std::pair<std::int64_t, std::size_t>>{{0, piece}, {kWritePieceElements, piece}}));
  EXPECT_EQ(files_in(directory.path() / "deep/er/out"), (Names{"config.json", "model.safetensors"}));
  EXPECT_EQ(files_in(directory.path() / "deep/er"), (Names{"out"}));
}

TEST(ModelDirectory, ReplacesAnOlderModelWhole) {
  const TestDirectory directory;
  const Model sharded("mistral-tiny"), single("llama-tiny");
  sharded.save(directory.path(), {.shard_bytes = 60'000});
  directory.write("README.md", "mine");
  directory.write("model-1-of-2.safetensors", "mine");
  Names expected = kSharded;
  expected.insert({"README.md", "model-1-of-2.safetensors"});
  EXPECT_EQ(files_in(directory.path()), expected);
  single.save(directory.path());
  expected = kSingle;
  expected.insert({"README.md", "model-1-of-2.safetensors"});
  EXPECT_EQ(files_in(directory.path()), expected);
  EXPECT_EQ(load_config(directory.path()).architecture, Architecture::llama);
  sharded.save(directory.path(), {.shard_bytes = 60'000});
  EXPECT_EQ(WeightFiles(directory.path()).files().size(), 3u);
  EXPECT_EQ(read_text(directory.path() / "README.md"), "mine");
}

TEST(ModelDirectory, CarriesTheTokenizerAlone) {
  const TestDirectory source, target;
  source.write("config.json", R"({"model_type":"gpt2"})");
  for (const char* name : {"tokenizer.json", "merges.txt", "chat_template.jinja", "notes.txt"})
    source.write(name, name);
  source.write("tokenizer.model", std::string(3'000'000, 'x'));
  target.write("added_tokens.json", "old");
  write_model_directory(source.path(), target.path(), {}, {});
  EXPECT_EQ(files_in(target.path()), (Names{"config.json", "model.safetensors", "tokenizer.json", "merges.txt",
                                            "chat_template.jinja", "tokenizer.model"}));
  EXPECT_EQ(read_text(target.path() / "tokenizer.model"), std::string(3'000'000, 'x'));

  const TestDirectory bare;
  bare.write("config.json", R"({"model_type":"gpt2"})");
  write_model_directory(bare.path(), target.path(), {}, {});
  EXPECT_TRUE(fs::exists(target.path() / "tokenizer.json"));
}

TEST(ModelDirectory, MaySaveOverItsSource) {
  const TestDirectory directory;
  Model("mistral-tiny").save(directory.path() / "m", {.shard_bytes = 60'000});
  const WeightFiles weights(directory.path() / "m");
  write_model_directory(
      directory.path() / "m", directory.path() / "m", Model("mistral-tiny").tensors,
      [&](const std::string& name, std::int64_t begin, std::span<float> out) { weights.read(name, begin, out); });
  EXPECT_EQ(files_in(directory.path() / "m"), kSingle);
}

// Saves into new and existing directories inside `limit`; each time it must fail and all be as it was.
template <class F>
std::string fault_that_leaves_no_trace(const Model& model, const TensorReader& read, F&& limit) {
  const TestDirectory directory;
  model.save(directory.path() / "old", {.shard_bytes = 60'000});
  std::string text;
  for (const char* target : {"new", "more/new", "old"})
    text = error_text([&] {
      limit([&] { write_model_directory(model.directory, directory.path() / target, model.tensors, read, {}); });
    });
  EXPECT_EQ(files_in(directory.path()), (Names{"old"}));
  EXPECT_EQ(files_in(directory.path() / "old"), kSharded);
  EXPECT_EQ(WeightFiles(directory.path() / "old").names().size(), 21u);
  return text;
}

TEST(ModelDirectory, LeavesNothingWhenTheReaderFails) {
  const Model model("mistral-tiny");
  const auto text = fault_that_leaves_no_trace(
      model,
      [](const std::string& name, std::int64_t, std::span<float>) {
        if (name == "model.norm.weight") throw Error("rank 3 is gone");
      },
      [](auto&& save) { save(); });
  EXPECT_TRUE(names(text, "cannot save the model in"));
  EXPECT_TRUE(names(text, "rank 3 is gone (nothing there was changed)"));
}

TEST(ModelDirectory, LeavesNothingWhenAWriteFails) {
  const Model model("mistral-tiny");
  const auto text = fault_that_leaves_no_trace(model, model.reader(), [](auto&& save) {
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{100'000, before.rlim_max};
    const auto handler = ::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &small);
    try {
      save();
    } catch (...) {
      ::setrlimit(RLIMIT_FSIZE, &before);
      ::signal(SIGXFSZ, handler);
      throw;
    }
    ::setrlimit(RLIMIT_FSIZE, &before);
    ::signal(SIGXFSZ, handler);
  });
  EXPECT_TRUE(names(text, "model.safetensors: File too large"));
}

TEST(ModelDirectory, RefusesBeforeItWrites) {
  const TestDirectory directory;
  const Model model("llama-tiny");
  const auto file = directory.write("file", "");
  EXPECT_TRUE(names(error_text([&] { model.save(file); }), "is there and not a directory"));
  EXPECT_TRUE(names(error_text([&] { model.save(file / "out"); }), "cannot save the model in"));
  EXPECT_TRUE(names(error_text([&] { write_model_directory(directory.path(), directory.path() / "out", {}, {}); }),
                    "config.json: No such file"));
  const std::vector<ModelTensor> huge{{"w", {std::int64_t{1} << 50}}};
  EXPECT_TRUE(
      names(error_text([&] { write_model_directory(golden("llama-tiny"), directory.path() / "out", huge, {}); }),
            "are free there; make room"));
  EXPECT_EQ(files_in(directory.path()), (Names{"file"}));
}

}  // namespace
}  // namespace zeepo
