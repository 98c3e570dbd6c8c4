// The papers' answers as a whole, and what they recommend.
#include "zeepo/plan/textbook.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "zeepo/plan/textbook_choice.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

TextbookQuestion seven_and_a_half_billion(std::int64_t ranks) {
  TextbookQuestion question;
  question.params = 7'500'000'000;
  question.ranks = ranks;
  return question;
}

constexpr TransformerShape kTrillion{.layers = 128, .hidden = 25600, .heads = 256};

TEST(Textbook, HasTheFieldsThatScriptsRelyOn) {
  TextbookQuestion question = TextbookQuestion::of(kTrillion);
  question.ranks = 512;
  question.gpus_per_node = 16;
  question.batch.samples = 4;
  question.bytes = BytesPerParam::of(20);
  const Json json = to_json(textbook_of(question));
  EXPECT_EQ(json.at("params"), 1'006'632'960'000);
  EXPECT_EQ(json.at("stages").size(), 4u);
  EXPECT_EQ(json.at("stages").at(0).at("bytes_per_rank"), 20 * 1'006'632'960'000);
  EXPECT_EQ(json.at("stages").at(3).at("stage"), 3);
  EXPECT_EQ(json.at("stages").at(3).at("comm_elements_per_step"), 3 * 1'006'632'960'000);
  const double tebi = 0x1p40, gibi = 0x1p30;
  EXPECT_EQ(json.at("activations").at("full_bytes_per_node").get<double>() / tebi, 7.125);
  EXPECT_EQ(json.at("working").at("model_state_bytes").get<double>() / gibi, 9.765625);
  EXPECT_EQ(json.at("working").at("activation_bytes").get<double>() / gibi, 3.5625);
  const Json& bandwidth = json.at("bandwidth");
  EXPECT_EQ(bandwidth.at(0).at("for"), "params+grads");
  EXPECT_EQ(bandwidth.at(0).at("ait"), 4096.0);
  EXPECT_DOUBLE_EQ(bandwidth.at(0).at("gbps_for_50").get<double>(), 70e12 / 4096 / 1e9);
  EXPECT_DOUBLE_EQ(bandwidth.at(0).at("gbps_for_90").get<double>(), 9 * 70e12 / 4096 / 1e9);
  EXPECT_EQ(bandwidth.at(1).at("ait"), 1024.0);
  EXPECT_EQ(bandwidth.at(2).at("ait"), 24.0 * 25600);
  // Batch 32 a node.
  question.batch.samples = 2;
  EXPECT_EQ(to_json(textbook_of(question)).at("activations").at("checkpoint_bytes_per_node"),
            2LL * 32 * 1024 * 25600 * 128);
}

TEST(Textbook, SaysNothingOfActivationsWithoutAShape) {
  const Json json = to_json(textbook_of(seven_and_a_half_billion(64)));
  EXPECT_TRUE(json.at("activations").is_null());
  EXPECT_TRUE(json.at("working").is_null());
  EXPECT_EQ(json.at("bandwidth").size(), 2u);
  EXPECT_EQ(json.at("share").at("most"), 117'187'500);
  EXPECT_EQ(json.at("share").at("least"), 117'187'500);
}

TEST(Textbook, TellsTheEmbeddingBesideTheParameters) {
  TextbookQuestion question = TextbookQuestion::of({.layers = 2, .hidden = 64, .heads = 4});
  question.vocab = 1000;
  const Json json = to_json(textbook_of(question));
  EXPECT_EQ(json.at("params"), 12 * 2 * 64 * 64);
  EXPECT_EQ(json.at("embedding_params"), 64'000);
}

TEST(Textbook, TellsTheEfficiencyAtABandwidth) {
  TextbookQuestion question = seven_and_a_half_billion(1);
  question.bytes_per_second = 3e9;
  question.peak_flops = 1.024e12;
  question.batch.samples = 1;
  const Json json = to_json(textbook_of(question));
  EXPECT_DOUBLE_EQ(json.at("bandwidth").at(0).at("efficiency").get<double>(), 0.75);
  EXPECT_DOUBLE_EQ(json.at("bandwidth").at(1).at("efficiency").get<double>(), 3.0 / 7);
}

TEST(Textbook, RefusesWhatHasNoAnswer) {
  TextbookQuestion question = seven_and_a_half_billion(64);
  question.gpus_per_node = 0;
  EXPECT_TRUE(names(error_text([&] { textbook_of(question); }), "--gpus-per-node 0", "at least 1"));
  question = TextbookQuestion::of(kTrillion);
  question.gpus_per_node = 1'000'000'000'000'000'000;
  question.batch.samples = 1000;
  EXPECT_TRUE(names(error_text([&] { textbook_of(question); }), "samples of a node", "2^63"));
}

TEST(TextbookChoice, TakesTheFirstThatFits) {
  constexpr std::int64_t kGB = 1'000'000'000;
  const Textbook many = textbook_of(seven_and_a_half_billion(64)), one = textbook_of(seven_and_a_half_billion(1));
  const auto chosen = [](const Textbook& textbook, std::int64_t device, std::int64_t host, std::int64_t nvme) {
    return *choose_by_textbook(textbook, {device * kGB, host * kGB, nvme * kGB});
  };
  EXPECT_FALSE(choose_by_textbook(many, {0, kGB, kGB}));
  EXPECT_EQ(chosen(many, 17, 0, 0).stage, 2);
  EXPECT_EQ(chosen(many, 16, 0, 0).stage, 3);
  EXPECT_EQ(chosen(one, 120, 0, 0).stage, 0);
  EXPECT_EQ(chosen(one, 120, 0, 0).optimizer, Place::device);
  EXPECT_EQ(chosen(one, 119, 105, 0).optimizer, Place::host);  // 2 bytes stay, 14 leave
  EXPECT_EQ(chosen(one, 14, 120, 0).params, Place::host);
  EXPECT_EQ(chosen(one, 14, 119, 105).optimizer, Place::nvme);
  EXPECT_EQ(chosen(one, 14, 119, 105).params, Place::host);
  EXPECT_EQ(chosen(one, 14, 14, 120).params, Place::nvme);
  const TextbookChoice nothing = chosen(one, 14, 14, 119);
  EXPECT_FALSE(nothing.fits());
  EXPECT_EQ(nothing.missing[2], kGB);
  EXPECT_EQ(to_json(nothing, one).at("missing_bytes").at("nvme"), kGB);
  EXPECT_TRUE(names(command_of(chosen(many, 16, 0, 0), many), "mpirun -n 64 zeepo train", "--stage 3"));
  EXPECT_TRUE(names(command_of(nothing, one), "--offload-optimizer nvme", "--offload-param nvme", "--nvme-path"));
}

TEST(TextbookChoice, ChecksActivationsBeforeItOffloads) {
  TextbookQuestion question = TextbookQuestion::of({.layers = 4, .hidden = 256, .heads = 4});
  question.batch = {.samples = 8, .seq_len = 1024};
  const Textbook textbook = textbook_of(question);
  const ActivationFigures& figures = *textbook.activations;
  const std::int64_t states = textbook.stages[0].bytes.total, working = figures.model_state_working_bytes;
  const auto roomy = choose_by_textbook(textbook, {states + working + figures.full_bytes_per_gpu, 0, 0});
  EXPECT_TRUE(roomy->fits());
  EXPECT_FALSE(roomy->checkpointing);
  const auto narrow = choose_by_textbook(textbook, {states + working + figures.full_bytes_per_gpu - 1, 0, 0});
  EXPECT_TRUE(narrow->fits());
  EXPECT_TRUE(narrow->checkpointing);
  EXPECT_EQ(narrow->bytes[0], states + working + figures.checkpoint_bytes_per_gpu + figures.working_bytes);
}

}  // namespace
}  // namespace zeepo
