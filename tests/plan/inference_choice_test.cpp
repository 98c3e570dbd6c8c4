// Plans of inference: the bytes of the run, and what pays.
#include "zeepo/plan/inference_choice.h"

#include <gtest/gtest.h>

#include "tests/plan/model_shapes.h"
#include "tests/support/errors.h"
#include "tests/support/test_data.h"
#include "tests/support/units.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/infer/batch_pass.h"
#include "zeepo/infer/generator.h"
#include "zeepo/infer/model_files.h"
#include "zeepo/model/weight_files.h"
#include "zeepo/plan/exact_plan.h"
#include "zeepo/plan/inference_text.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

// On a GPU of a described machine, alone, and on all of its GPUs.
InferenceQuestion question_on(const char* hardware_name, ModelConfig config, const std::vector<int>& ranks) {
  const Hardware hardware = find_hardware(hardware_name);
  InferenceQuestion question;
  question.config = std::move(config);
  question.options.command = "plan";
  question.options.backend = Backend::cuda;
  question.options.dtype = DType::bf16;
  question.options.nvme_paths = {"DIR"};
  question.weights = {CodedType::same, CodedType::int8, CodedType::int4};
  for (const int n : ranks) {
    RankRoom room{.device_option = gpu_budget(static_cast<std::size_t>(hardware.device_bytes)),
                  .host_option = hardware.host_bytes / n,
                  .nvme_option = hardware.nvme_bytes / n,
                  .files = true};
    room.device_bytes = room.device_option;
    const auto meet = n > 1 ? RankShape::Meet::on_device : RankShape::Meet::in_host_memory;
    question.ranks.push_back({{.ranks = n, .ranks_on_node = n, .meet = meet}, room, described_machine(hardware)});
  }
  return question;
}

const InferenceChoice& choice_named(const std::vector<InferenceChoice>& choices, int ranks, CodedType weights,
                                    const std::string& name) {
  for (const InferenceChoice& choice : choices)
    if (choice.ranks == ranks && choice.plan.options.weights == weights && choice.name == name) return choice;
  throw Error("no choice {} on {} ranks", name, ranks);
}

std::int64_t at(const PlaceBytes& bytes, Place place) { return bytes[static_cast<std::size_t>(place)]; }

ModelConfig qwen(const QwenShape& shape) {
  const TestDirectory directory;
  write_qwen_config(directory, shape);
  return load_config(directory.path());
}

// 96 blocks of width 12288 on a node of 8 A100.
TEST(InferenceChoice, PlansALargeModelOnSeveralGpus) {
  InferenceQuestion question = question_on("dgx-a100", config_of({96, 12288, 96}, 0, 640), {1, 8});
  const auto choices = inference_choices(question);
  const std::int64_t params = parameter_count(question.config);
  EXPECT_NEAR(static_cast<double>(params), 175e9, 1e9);
  // One GPU has no room for 350 GB, nor for 180.
  EXPECT_FALSE(choice_named(choices, 1, CodedType::same, "resident").fits());
  EXPECT_FALSE(choice_named(choices, 1, CodedType::int8, "resident").fits());
  // Codes of 8.25 bits in host memory, an eighth a rank.
  const InferenceChoice& coded = choice_named(choices, 8, CodedType::int8, "host");
  ASSERT_TRUE(coded.fits());
  const auto expected = static_cast<double>(params) * 8.25 / 8 / 8;
  EXPECT_NEAR(static_cast<double>(coded.plan.memory.peak[1][Kind::params]) / expected, 1, 0.02);
  EXPECT_LT(at(coded.plan.memory.bytes, Place::device), 60 * kGiB);
  // The link of 20 GB/s carries an eighth in every pass, and nothing is faster than that.
  const double link = static_cast<double>(coded.plan.memory.peak[1][Kind::params]) / 20e9;
  ASSERT_TRUE(coded.time);
  EXPECT_GE(coded.time->pass_seconds, 0.95 * link);
  EXPECT_LT(coded.time->pass_seconds, 2 * link);
  // Exact weights fit over eight GPUs, and need no host.
  const InferenceChoice* best = recommended(choices);
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(best->ranks, 8);
  EXPECT_EQ(best->name, "resident");
  EXPECT_TRUE(names(command_of(*best, question), "mpirun -n 8 zeepo generate --model DIR", "--dtype bf16"));
}

TEST(InferenceChoice, KeepsSmallModelsOnOneGpu) {
  InferenceQuestion question = question_on("h200", qwen(k3B), {1, 8});
  const auto choices = inference_choices(question);
  const InferenceChoice* best = recommended(choices);
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(best->ranks, 1);
  EXPECT_EQ(best->name, "resident");
  EXPECT_EQ(best->plan.options.weights, CodedType::same);
  // A token reads all weights once; offloaded ones come over a link that is a hundred times slower.
  const double reading = 2.0 * static_cast<double>(parameter_count(question.config)) / 4200e9;
  EXPECT_GE(best->time->pass_seconds, 0.9 * reading);
  const InferenceChoice& streamed = choice_named(choices, 1, CodedType::same, "host");
  EXPECT_GT(streamed.time->pass_seconds, 20 * best->time->pass_seconds);
  EXPECT_EQ(streamed.time->bound(), SimulatedTime::Resource::to_device);
  // Codes halve, and quarter, what the link carries.
  const InferenceChoice& int8 = choice_named(choices, 1, CodedType::int8, "host");
  const InferenceChoice& int4 = choice_named(choices, 1, CodedType::int4, "host");
  EXPECT_NEAR(int8.time->pass_seconds / streamed.time->pass_seconds, 8.25 / 16, 0.08);
  EXPECT_NEAR(int4.time->pass_seconds / streamed.time->pass_seconds, 4.5 / 16, 0.08);
  // Many texts share a pass.
  question.texts.batch = 16;
  const auto many = inference_choices(question);
  EXPECT_GT(choice_named(many, 1, CodedType::same, "host").time->tokens_per_second,
            8 * streamed.time->tokens_per_second);
}

// A prompt is read at the products' rate at best.
TEST(InferenceChoice, ReadsPromptsNoFasterThanTheirProducts) {
  InferenceQuestion question = question_on("h200", qwen(k3B), {1});
  question.weights = {CodedType::same};
  const double params = static_cast<double>(parameter_count(question.config));
  double before = 0;
  for (const std::int64_t prompt : {128, 1024, 4096, 16384}) {
    question.texts.prompt_tokens = prompt;
    const auto choices = inference_choices(question);
    const double seconds = choice_named(choices, 1, CodedType::same, "resident").time->first_token_seconds;
    EXPECT_GT(seconds, before) << prompt;
    before = seconds;
    // The embedding, which is the head here, is multiplied with the last token alone.
    const double embedding = static_cast<double>(question.config.vocab * question.config.hidden);
    EXPECT_GE(seconds, 2 * (params - embedding) * static_cast<double>(prompt) / 740e12) << prompt;
  }
}

// Where all of it does not fit, a part stays on the device and is not fetched.
TEST(InferenceChoice, KeepsWhatFitsOnTheDevice) {
  InferenceQuestion question = question_on("rtx4090", qwen(k14B), {1});
  const auto choices = inference_choices(question);
  EXPECT_FALSE(choice_named(choices, 1, CodedType::same, "resident").fits());
  const InferenceChoice& part = choice_named(choices, 1, CodedType::same, "part host");
  const InferenceChoice& host = choice_named(choices, 1, CodedType::same, "host");
  EXPECT_GT(at(part.plan.memory.bytes, Place::device), 20 * kGiB);
  EXPECT_LT(part.time->pass_seconds, 0.7 * host.time->pass_seconds);
  EXPECT_EQ(recommended(choices), &part);
  const InferenceChoice* faster = faster_by_codes(choices, part);
  ASSERT_NE(faster, nullptr);
  EXPECT_NE(faster->plan.options.weights, CodedType::same);
  const Json json = inference_json(question, choices);
  EXPECT_EQ(json.at("recommended").at("weights_in"), "part host");
  EXPECT_EQ(json.at("choices").size(), choices.size());
  EXPECT_TRUE(names(inference_text(question, choices), "Recommended:", "part host", "times as fast"));
}

TEST(InferenceChoice, CountsTheCache) {
  InferenceQuestion question = question_on("h200", qwen(k7B), {1});
  question.weights = {CodedType::same};
  const auto device_bytes = [&] { return at(inference_choices(question).front().plan.memory.bytes, Place::device); };
  // 28 layers of 4 heads of 128, keys and values, 2 bytes each.
  EXPECT_EQ(kv_bytes(question), 2LL * 28 * 640 * 4 * 128 * 2);
  const std::int64_t few = device_bytes(), few_kv = kv_bytes(question);
  question.texts.new_tokens = 8192;
  EXPECT_EQ(device_bytes() - few, kv_bytes(question) - few_kv);
  question.options.kv_int8 = true;
  EXPECT_LT(kv_bytes(question), few_kv * 8);
}

TEST(InferenceChoice, SaysWhenNothingFits) {
  InferenceQuestion question = question_on("h200", qwen(k7B), {1});
  question.ranks[0].room.device_option = 1 << 20;
  question.ranks[0].room.host_option = 1 << 20;
  question.ranks[0].room.nvme_option = 1 << 20;
  const auto choices = inference_choices(question);
  EXPECT_EQ(recommended(choices), nullptr);
  EXPECT_TRUE(names(inference_text(question, choices), "Nothing fits", "device: ", "short"));
  EXPECT_TRUE(inference_json(question, choices).at("recommended").is_null());
}

TEST(InferenceChoice, RefusesTextsThatCannotBe) {
  ModelConfig config;
  config.max_positions = 100;
  const auto fault = [&](const TextsAsked& texts) { return error_text([&] { check(texts, config); }); };
  EXPECT_NO_THROW(check({1, 50, 50}, config));
  EXPECT_TRUE(names(fault({0, 50, 50}), "--batch 0"));
  EXPECT_TRUE(names(fault({1, 0, 50}), "--prompt-tokens 0"));
  EXPECT_TRUE(names(fault({1, 50, -1}), "--new-tokens -1"));
  EXPECT_TRUE(names(fault({1, 50, 51}), "100 positions"));
  config.max_positions = std::int64_t{1} << 40;
  EXPECT_TRUE(names(fault({4096, 1 << 20, 1}), "--batch 4096"));
}

// On the CPU: what is planned is what a run holds.
TEST(InferenceChoice, HasTheBytesOfTheRun) {
  const std::filesystem::path directory = golden("llama-tiny");
  for (const std::int64_t batch : {1, 3}) {
    InferenceQuestion question;
    question.config = load_config(directory);
    question.texts = {.batch = batch, .prompt_tokens = 9, .new_tokens = 5};
    question.options.command = "plan";
    question.options.model = directory;
    question.weights = {CodedType::same, CodedType::int8};
    const RankRoom room{.device_bytes = 1 << 25, .device_option = 1 << 24, .host_option = 1 << 24};
    question.ranks.push_back({{}, room, {}});
    for (const InferenceChoice& choice : inference_choices(question)) {
      if (choice.name == "nvme") continue;
      InferenceOptions options = choice.plan.options;
      options.threads = 1;
      const std::vector<std::int32_t> prompt(9, 1);
      Inference inference(options, alone(), work_of(options, question.texts));
      EXPECT_EQ(inference.plan().memory.bytes, choice.plan.memory.bytes) << choice.name;
      if (batch == 1) {
        GenerateOptions asked;
        asked.max_new_tokens = 5;
        (void)generate(inference.engine(), inference.model(), kv_dtype(options), prompt, asked, [](std::int32_t) {});
        for (const Place place : {Place::device, Place::host})
          EXPECT_EQ(inference.session().peak(place).total,
                    choice.plan.memory.peak[static_cast<std::size_t>(place)].total)
              << choice.name;
      }
    }
  }
}

// The same of every kind and tier, where two ranks share out the weights.
TEST(InferenceChoice, HasTheBytesOfTwoRanks) {
  const std::filesystem::path directory = golden("llama-tiny");
  const TestDirectory files;
  InferenceQuestion question;
  question.config = load_config(directory);
  question.texts = {.batch = 1, .prompt_tokens = 9, .new_tokens = 5};
  question.options.command = "plan";
  question.options.model = directory;
  question.options.nvme_paths = {files.path()};
  question.options.in_files = weights_in_model_files(question.config, WeightFiles(directory), question.options.dtype);
  question.weights = {CodedType::same, CodedType::int8, CodedType::int4};
  const RankRoom room{
      .device_bytes = 1 << 25, .device_option = 1 << 24, .host_option = 1 << 24, .nvme_option = 1 << 24, .files = true};
  question.ranks.push_back({{.ranks = 2, .ranks_on_node = 2}, room, {}});
  const auto choices = inference_choices(question);
  ASSERT_EQ(choices.size(), 9u);
  for (const InferenceChoice& choice : choices) {
    SCOPED_TRACE(fmt::format("{} {}", weights_name(choice.plan.options), choice.name));
    InferenceOptions options = choice.plan.options;
    options.threads = 1;
    std::array<Usage, kPlaces.size()> held;  // by rank 0
    ThreadsWorld world(2);
    run(world, [&](Communicator& communicator) {
      Inference inference(options, communicator, work_of(options, question.texts));
      GenerateOptions asked;
      asked.max_new_tokens = 5;
      const std::vector<std::int32_t> prompt(9, 1);
      (void)generate(inference.engine(), inference.model(), kv_dtype(options), prompt, asked, [](std::int32_t) {});
      if (communicator.rank() != 0) return;
      for (const Place place : kPlaces) held[static_cast<std::size_t>(place)] = inference.session().peak(place);
    });
    for (const Place place : kPlaces)
      for (const Kind kind : kKinds)
        EXPECT_EQ(held[static_cast<std::size_t>(place)][kind],
                  choice.plan.memory.peak[static_cast<std::size_t>(place)][kind])
            << name_of(place) << " " << name_of(kind);
  }
}

}  // namespace
}  // namespace zeepo
