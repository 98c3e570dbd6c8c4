// The logits of a sequence are the same to the bit alone or in any batch, prefilled whole or in chunks, decoded token
// by token or computed by training's forward pass; for any number of threads.
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/support/golden.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/ops/loss.h"

namespace zeepo {
namespace {

using Ids = std::vector<std::int32_t>;
using Logits = std::vector<float>;  // (positions, vocab)

constexpr std::size_t kSequences = 9;

Ids sequence(std::uint64_t seed, std::int64_t length, std::int64_t vocab) {
  Ids ids;
  for (std::int64_t i = 0; i < length; ++i)
    ids.push_back(
        static_cast<std::int32_t>(uniform({seed}, static_cast<std::uint64_t>(i)) * static_cast<float>(vocab)));
  return ids;
}

class Model {
 public:
  Model(const ModelConfig& config, const std::filesystem::path& weights, DType dtype, int threads)
      : config_(config),
        dtype_(dtype),
        session_({.threads = threads, .device_bytes = 1 << 28}),
        model_(make_model(config)),
        engine_(*model_, session_.communicator(), {.dtype = dtype}) {
    if (weights.empty()) {
      engine_.load(random_weights(5));
    } else {
      const WeightFiles files(weights);
      engine_.load(stored_weights(config, engine_.slices(), files));
    }
  }

  // Of every sequence, in chunks of so many positions through a cache; 0: at once and without one.
  std::vector<Logits> logits(const std::vector<Ids>& batch, std::size_t chunk) {
    const std::size_t length = batch[0].size(), vocab = static_cast<std::size_t>(config_.vocab);
    std::vector<Logits> result(batch.size());
    KvCache cache(config_, extent(batch), static_cast<std::int64_t>(length), dtype_);
    for (std::size_t begin = 0, count = chunk ? chunk : length; begin < length; begin += count) {
      count = std::min(count, length - begin);
      Logits all;
      engine_.infer([&] { all = model_->logits(tensor(batch, begin, count), chunk ? &cache : nullptr).to_floats(); });
      for (std::size_t b = 0; b < batch.size(); ++b) {
        const auto* first = all.data() + b * count * vocab;
        result[b].insert(result[b].end(), first, first + count * vocab);
      }
    }
    return result;
  }

  // A training step's loss, and the one that the logits of each sequence alone give. The target is that of one position
  // of one sequence; the others have none.
  std::pair<float, float> losses(const std::vector<Ids>& batch, std::size_t sequence, std::size_t position) {
    const std::size_t length = batch[0].size();
    Ids targets(batch.size() * length, -1);
    targets[sequence * length + position] = batch[sequence][position] / 2;
    const Shape shape{extent(batch), static_cast<std::int64_t>(length)};
    const Tensor wanted = Tensor::from<std::int32_t>(targets, shape);
    std::pair<float, float> result;
    engine_.infer([&] {
      const Tensor all({shape.elements(), config_.vocab}, dtype_);
      for (std::size_t b = 0; b < batch.size(); ++b) {
        const Tensor alone = model_->logits(tensor({batch[b]}, 0, length));
        const std::int64_t elements = alone.elements();
        launch([&](auto& s) {
          copy(s, alone.view(), all.part(static_cast<std::int64_t>(b) * elements, alone.shape()).view());
        });
      }
      result.second = cross_entropy(all, wanted).to_floats()[0];
    });
    engine_.micro_step([&] {
      const Tensor loss = model_->loss(tensor(batch, 0, length), wanted);
      result.first = loss.to_floats()[0];
      return loss;
    });
    engine_.step(0);
    return result;
  }

 private:
  static std::int64_t extent(const std::vector<Ids>& batch) { return static_cast<std::int64_t>(batch.size()); }
  static Tensor tensor(const std::vector<Ids>& batch, std::size_t begin, std::size_t count) {
    Ids ids;
    for (const Ids& all : batch)
      ids.insert(ids.end(), all.begin() + static_cast<std::ptrdiff_t>(begin),
                 all.begin() + static_cast<std::ptrdiff_t>(begin + count));
    return Tensor::from<std::int32_t>(ids, {extent(batch), static_cast<std::int64_t>(count)});
  }

  ModelConfig config_;
  DType dtype_;
  Session session_;
  std::unique_ptr<LanguageModel> model_;
  ModelEngine engine_;
};

bool same_bits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Plan {
  std::int64_t length;
  std::vector<std::size_t> batches, chunks;
  std::vector<std::size_t> chunks_of_three;  // three sequences at a time
};

void expect_no_influence_of_company(const ModelConfig& config, const std::filesystem::path& weights, DType dtype,
                                    const Plan& plan) {
  std::vector<Ids> sequences;
  for (std::uint64_t i = 0; i < kSequences; ++i) sequences.push_back(sequence(i, plan.length, config.vocab));
  std::vector<Logits> alone;
  {
    Model one(config, weights, dtype, 1);
    for (const Ids& ids : sequences) alone.push_back(one.logits({ids}, 0)[0]);
  }
  for (const int threads : {2, 3}) {
    Model model(config, weights, dtype, threads);
    for (const std::size_t batch : plan.batches)
      for (const std::size_t shift : {std::size_t{1}, batch - 1}) {
        std::vector<Ids> together;
        for (std::size_t b = 0; b < batch; ++b) together.push_back(sequences[(b + shift) % kSequences]);
        const auto got = model.logits(together, 0);
        for (std::size_t b = 0; b < batch; ++b)
          EXPECT_TRUE(same_bits(got[b], alone[(b + shift) % kSequences]))
              << name_of(dtype) << ", sequence " << b << " of " << batch << ", " << threads << " threads";
      }
    for (const std::size_t chunk : plan.chunks)
      EXPECT_TRUE(same_bits(model.logits({sequences[0]}, chunk)[0], alone[0]))
          << name_of(dtype) << ", in chunks of " << chunk << ", " << threads << " threads";
    for (const std::size_t chunk : plan.chunks_of_three) {
      const auto got = model.logits({sequences[4], sequences[2], sequences[7]}, chunk);
      for (const auto& [b, of] : {std::pair<std::size_t, std::size_t>{0, 4}, {1, 2}, {2, 7}})
        EXPECT_TRUE(same_bits(got[b], alone[of]))
            << name_of(dtype) << ", sequence " << b << " of 3 in chunks of " << chunk << ", " << threads << " threads";
    }
    for (const auto& [sequence, position] : {std::pair<std::size_t, std::size_t>{0, 0}, {1, 7}, {2, 15}}) {
      const auto [trained, from_logits] = model.losses({sequences[0], sequences[3], sequences[1]}, sequence, position);
      EXPECT_EQ(trained, from_logits) << name_of(dtype) << ", position " << position << " of sequence " << sequence;
    }
  }
}

class Company : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, Company, ::testing::ValuesIn(golden_names()), golden_test_name);

TEST_P(Company, DoesNotChangeASequencesLogits) {
  const Golden golden = load_golden(GetParam());
  const Plan plan{.length = std::min<std::int64_t>(37, golden.config.max_positions),
                  .batches = {2, 3, 4, 5, 6, 7, 8, 9},
                  .chunks = {1, 2, 3, 7, 8, 9, 16},
                  .chunks_of_three = {1, 2, 5, 16}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    expect_no_influence_of_company(golden.config, golden.directory, dtype, plan);
}

// Long enough that queries and keys are in several blocks, products in several pieces; with odd widths.
TEST(CompanyOfLongSequences, DoesNotChangeTheirLogits) {
  const nlohmann::json gpt2 = {{"model_type", "gpt2"}, {"architectures", {"GPT2LMHeadModel"}},
                               {"n_embd", 200},        {"n_head", 5},
                               {"n_layer", 1},         {"n_positions", 400},
                               {"n_inner", 1100},      {"vocab_size", 77}};
  const nlohmann::json mistral = {{"model_type", "mistral"},  {"architectures", {"MistralForCausalLM"}},
                                  {"hidden_size", 192},       {"intermediate_size", 1100},
                                  {"num_hidden_layers", 1},   {"num_attention_heads", 6},
                                  {"num_key_value_heads", 2}, {"head_dim", 40},
                                  {"vocab_size", 77},         {"max_position_embeddings", 400},
                                  {"sliding_window", 270}};
  const Plan plan{.length = 345, .batches = {2, 3}, .chunks = {1, 7, 64, 100}, .chunks_of_three = {1, 90}};
  for (const auto& json : {gpt2, mistral})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      expect_no_influence_of_company(parse_config(json.dump()), {}, dtype, plan);
}

}  // namespace
}  // namespace zeepo
