// Weights on the device, in host memory, in files, over ranks: the same tokens and the same logits to the bit, within
// the budgets.
#include "zeepo/infer/inference.h"

#include <gtest/gtest.h>

#include <mutex>

#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "tests/support/scratch_model.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/infer/generator.h"

namespace zeepo {
namespace {

using Ids = std::vector<std::int32_t>;

struct Answer {
  Ids ids;
  std::vector<float> logits;
  Generation generation;
  PlaceBytes planned, used;
  FilesInUse files;
};

class Streamed : public ::testing::TestWithParam<std::string> {
 protected:
  InferenceOptions options() const {
    InferenceOptions options;
    options.command = "generate";
    options.model = golden_.directory;
    options.threads = 2;
    options.device_bytes = 1 << 24;
    options.host_bytes = 1 << 25;
    return options;
  }

  Answer answer(const InferenceOptions& options, Communicator& communicator = alone(), double temperature = 0) const {
    Answer answer;
    const auto work = [&](ModelEngine& engine, LanguageModel& model) {
      answer.logits = prompt_logits(engine, model, prompt_);
      answer.generation = generate(engine, model, options.dtype, prompt_,
                                   {.max_new_tokens = static_cast<std::int64_t>(expected_.size()),
                                    .sampling = {.temperature = static_cast<float>(temperature)},
                                    .stop = {},
                                    .draft_tokens = 4},
                                   [](std::int32_t) {});
    };
    Inference inference(options, communicator, work);
    work(inference.engine(), inference.model());
    answer.ids = answer.generation.ids;
    answer.planned = inference.plan().memory.bytes;
    answer.files = inference.files();
    for (const Place place : kPlaces)
      answer.used[static_cast<std::size_t>(place)] = static_cast<std::int64_t>(inference.session().peak(place).total);
    return answer;
  }

  const Golden golden_ = load_golden(GetParam());
  const Ids prompt_ = golden_.values.at("prompt").get<Ids>(), expected_ = golden_.values.at("greedy").get<Ids>();
  const TestDirectory files_;
};
INSTANTIATE_TEST_SUITE_P(Models, Streamed, ::testing::ValuesIn(golden_names()), golden_test_name);

TEST_P(Streamed, TokensAndLogitsAreTheSameWhereverTheWeightsLive) {
  const Answer resident = answer(options());
  EXPECT_EQ(resident.ids, expected_);
  std::vector<InferenceOptions> places(7, options());
  places[0].params.host = 1;
  places[1].params.nvme = 1;
  places[2].params = {0.4, 0.3};
  places[3].params.host = 0.5;
  places[3].cache = CachePolicy::lru;
  places[4].params.host = 1;
  places[4].prefetch_bytes = 0;
  places[5].params.nvme = 1;
  places[5].blocks_per_unit = 2;
  places[6].params.host = 1;
  places[6].prefetch_bytes = 1 << 14;
  for (InferenceOptions& options : places) {
    options.nvme_paths = {files_.path()};
    const Answer streamed = answer(options);
    EXPECT_EQ(streamed.ids, expected_) << placement_flags(options);
    EXPECT_EQ(streamed.logits, resident.logits) << placement_flags(options);
    for (std::size_t i = 0; i < kPlaces.size(); ++i) EXPECT_LE(streamed.used[i], streamed.planned[i]);
  }
}

// Nothing is copied, and no room of the disk is taken, where the model's files have what a run needs.
TEST_P(Streamed, WeightsInFilesAreReadFromTheModelsOwn) {
  constexpr auto kNvme = static_cast<std::size_t>(Place::nvme);
  const WeightFiles files(golden_.directory);
  const SafetensorsEntry& any = files.at(files.names().front());
  InferenceOptions resident = options();
  resident.dtype = any.dtype.value();
  const Answer expected = answer(resident);
  InferenceOptions below = resident;
  below.threads = 1;
  below.params.nvme = 1;
  below.nvme_paths = {files_.path()};
  for (const int ranks : {1, 3}) {
    ThreadsWorld world(ranks);
    run(world, [&](Communicator& communicator) {
      const Answer own = answer(below, communicator);
      InferenceOptions copies = below;
      copies.copy_weights = true;
      const Answer copied = answer(copies, communicator);
      for (const Answer* one : {&own, &copied}) {
        EXPECT_EQ(one->ids, expected.ids);
        EXPECT_EQ(one->logits, expected.logits);
        EXPECT_GT(one->generation.last_pass().moved.carried.read, 0);
      }
      EXPECT_GT(own.files.in_place_bytes, 0);
      EXPECT_EQ(own.files.copied_bytes, 0);
      EXPECT_EQ(own.files.why_copied, "");
      EXPECT_EQ(own.planned[kNvme], 0);
      EXPECT_EQ(copied.files.copied_bytes, own.files.in_place_bytes);
      EXPECT_GE(copied.planned[kNvme], copied.files.copied_bytes);
    });
  }
  InferenceOptions other = below;
  other.dtype = resident.dtype == DType::f32 ? DType::bf16 : DType::f32;
  const Answer converted = answer(other);
  EXPECT_EQ(converted.files.in_place_bytes, 0);
  EXPECT_TRUE(names(converted.files.why_copied, any.dtype_name, name_of(other.dtype)));
}

TEST_P(Streamed, EveryPassFetchesWhatLivesBelowTheDevice) {
  InferenceOptions below = options();
  below.params.host = 1;
  const Answer all = answer(below);
  const std::int64_t bytes = all.generation.prefill.moved.carried.to_device;
  EXPECT_GT(bytes, 0);
  for (const PassReport& pass : all.generation.decode) EXPECT_EQ(pass.moved.carried.to_device, bytes);
  below.params.host = 0.5;
  for (const PassReport& pass : answer(below).generation.decode) {
    EXPECT_GT(pass.moved.carried.to_device, 0);
    EXPECT_LT(pass.moved.carried.to_device, bytes);
  }
}

TEST_P(Streamed, RanksKeepAPartEachAndAnswerAlike) {
  const Answer resident = answer(options());
  for (const int ranks : {2, 3}) {
    std::mutex mutex;
    std::vector<Answer> answers;
    ThreadsWorld world(ranks);
    run(world, [&](Communicator& communicator) {
      InferenceOptions sharded = options();
      sharded.threads = 1;
      sharded.params.host = communicator.size() == 3 ? 1 : 0;
      Answer own = answer(sharded, communicator);
      const std::lock_guard lock(mutex);
      answers.push_back(std::move(own));
    });
    ASSERT_EQ(answers.size(), static_cast<std::size_t>(ranks));
    for (const Answer& own : answers) {
      EXPECT_EQ(own.ids, expected_);
      EXPECT_EQ(own.logits, resident.logits);
      EXPECT_GT(own.generation.last_pass().moved.sent.all_gather, 0);
    }
  }
}

// Codes are expanded to the same values wherever they come from.
TEST_P(Streamed, CodedWeightsAnswerAlikeWhereverTheyLive) {
  const Answer exact = answer(options());
  for (const CodedType type : {CodedType::int8, CodedType::int4}) {
    InferenceOptions coded = options();
    coded.weights = type;
    const Answer resident = answer(coded);
    EXPECT_NE(resident.logits, exact.logits) << name_of(type);
    std::vector<InferenceOptions> places(5, coded);
    places[0].params.host = 1;
    places[1].params.nvme = 1;
    places[2].params = {0.4, 0.3};
    places[3].params.host = 0.5;
    places[3].cache = CachePolicy::lru;
    places[4].params.nvme = 1;
    places[4].prefetch_bytes = 0;
    places[4].blocks_per_unit = 2;
    for (InferenceOptions& options : places) {
      options.nvme_paths = {files_.path()};
      const Answer streamed = answer(options);
      EXPECT_EQ(streamed.ids, resident.ids) << placement_flags(options);
      EXPECT_EQ(streamed.logits, resident.logits) << placement_flags(options);
      for (std::size_t i = 0; i < kPlaces.size(); ++i) EXPECT_LE(streamed.used[i], streamed.planned[i]);
    }
    ThreadsWorld world(3);
    run(world, [&](Communicator& communicator) {
      InferenceOptions sharded = coded;
      sharded.threads = 1;
      sharded.params.host = type == CodedType::int8 ? 1 : 0;
      const Answer own = answer(sharded, communicator);
      EXPECT_EQ(own.ids, resident.ids);
      EXPECT_EQ(own.logits, resident.logits);
    });
  }
}

// A draft changes when tokens come, and no token.
TEST_P(Streamed, DraftsChangeNoToken) {
  std::vector<InferenceOptions> places(5, options());
  places[1].params.host = 1;
  places[2].params.nvme = 1;
  places[2].draft_place = Place::host;
  places[3].params.host = 0.5;
  places[4].params.host = 1;
  places[4].weights = CodedType::int8;
  for (InferenceOptions& options : places) {
    options.nvme_paths = {files_.path()};
    for (const double temperature : {0.0, 1.0}) {
      options.drafts = Drafts::none;
      const Ids plain = answer(options, alone(), temperature).ids;
      options.drafts = Drafts::wanted;
      const Answer drafted = answer(options, alone(), temperature);
      EXPECT_EQ(drafted.ids, plain) << placement_flags(options) << " " << temperature;
      EXPECT_GT(drafted.generation.drafted, 0);
      EXPECT_LE(drafted.generation.accepted, drafted.generation.drafted);
      EXPECT_EQ(drafted.generation.decode.size() + static_cast<std::size_t>(drafted.generation.accepted) + 1,
                plain.size());
      for (std::size_t i = 0; i < kPlaces.size(); ++i) EXPECT_LE(drafted.used[i], drafted.planned[i]);
    }
  }
}

// Where weights live, over how many ranks, with drafts and without: one text, and one set of logits to the bit.
TEST_P(Streamed, EveryCombinationAnswersAlike) {
  const Answer resident = answer(options());
  std::vector<InferenceOptions> places(6, options());
  places[1].params.host = 1;
  places[2].params.nvme = places[3].params.nvme = 1;
  places[3].copy_weights = true;
  places[4].params.host = places[5].params.nvme = 0.5;
  places[4].cache = places[5].cache = CachePolicy::lru;
  for (InferenceOptions& place : places) {
    place.threads = 1;
    place.nvme_paths = {files_.path()};
    for (const int ranks : {1, 3})
      for (const Drafts drafts : {Drafts::none, Drafts::wanted}) {
        place.drafts = drafts;
        ThreadsWorld world(ranks);
        run(world, [&](Communicator& communicator) {
          const Answer own = answer(place, communicator);
          EXPECT_EQ(own.ids, expected_) << placement_flags(place) << ", " << ranks << " ranks";
          EXPECT_EQ(own.logits, resident.logits) << placement_flags(place) << ", " << ranks << " ranks";
          EXPECT_EQ(own.generation.drafted > 0, drafts == Drafts::wanted);
          for (std::size_t i = 0; i < kPlaces.size(); ++i) EXPECT_LE(own.used[i], own.planned[i]);
        });
      }
  }
}

TEST_P(Streamed, RanksDraftAlike) {
  const Ids plain = answer(options()).ids;
  ThreadsWorld world(3);
  run(world, [&](Communicator& communicator) {
    InferenceOptions sharded = options();
    sharded.threads = 1;
    sharded.params.host = 1;
    sharded.drafts = Drafts::wanted;
    const Answer own = answer(sharded, communicator);
    EXPECT_EQ(own.ids, plain);
    EXPECT_GT(own.generation.drafted, 0);
  });
}

// A model of some megabytes, so that a budget leaves room for a part of it.
class Placed : public ::testing::Test {
 protected:
  static constexpr std::int64_t kMiB = 1 << 20;

  InferencePlan plan(const InferenceOptions& options, std::size_t prompt_tokens = 16,
                     std::int64_t prefill_tokens = GenerateOptions{}.prefill_tokens) const {
    const ModelConfig config = load_config(directory_.path());
    const Ids prompt(prompt_tokens, 1);
    return plan_inference(options, config, {},
                          {{.device_bytes = options.device_bytes,
                            .host_bytes = machine_bytes_ > 0 ? machine_bytes_ : options.host_bytes,
                            .free_host_bytes = options.host_bytes,
                            .device_option = options.device_bytes,
                            .host_option = options.host_bytes,
                            .nvme_option = options.nvme_bytes,
                            .files = !options.nvme_paths.empty(),
                            .one_memory = true}},
                          [&](ModelEngine& engine, LanguageModel& model) {
                            GenerateOptions how{.max_new_tokens = 16, .sampling = {}, .stop = {}};
                            how.prefill_tokens = prefill_tokens;
                            (void)generate(engine, model, options.dtype, prompt, how, [](std::int32_t) {});
                          });
  }
  InferenceOptions with(std::int64_t device, std::int64_t host) const {
    InferenceOptions options;
    options.command = "generate";
    options.model = directory_.path();
    options.device_bytes = device;
    options.host_bytes = host;
    options.prefetch_bytes = 0;
    options.choose = {.params = true, .prefetch = false};
    return options;
  }

  const ScratchModel directory_{128, 6, 512, 1000};
  std::int64_t machine_bytes_ = 0;  // 0: as the host's budget
};

TEST_F(Placed, AsMuchStaysOnTheDeviceAsFits) {
  const std::int64_t all = plan(with(64 * kMiB, 64 * kMiB)).memory.bytes[0];
  EXPECT_TRUE(plan(with(all, 64 * kMiB)).options.params.on_device());
  double below = 0;
  for (const std::int64_t part : {9, 7, 5, 3}) {
    const InferencePlan found = plan(with(all * part / 10, 64 * kMiB));
    EXPECT_LE(found.memory.bytes[0], all * part / 10);
    EXPECT_GT(found.options.params.host, below);
    EXPECT_EQ(found.options.params.nvme, 0);
    below = found.options.params.host;
  }
}

// Working memory is that of a pass, however long the prompt is.
TEST_F(Placed, ALongPromptInPassesNeedsLittle) {
  const InferenceOptions resident = with(64 * kMiB, 64 * kMiB);
  const auto bytes = [&](std::size_t prompt, std::int64_t pass) {
    return plan(resident, prompt, pass).memory.bytes[0];
  };
  EXPECT_LT(bytes(48, 4), bytes(48, 48) - 44 * 128 * 4);
  EXPECT_EQ(bytes(48, 48), bytes(48, 1000));
}

TEST_F(Placed, FilesTakeWhatTheHostHasNoRoomFor) {
  const std::int64_t all = plan(with(64 * kMiB, 64 * kMiB)).memory.bytes[0];
  const std::int64_t host = 4 * kMiB;  // buffers of the files are in it
  InferenceOptions small = with(all / 3, host);
  small.nvme_paths = {directory_.path()};
  small.nvme_bytes = 64 * kMiB;
  const InferencePlan found = plan(small);
  EXPECT_GT(found.options.params.nvme, 0);
  EXPECT_LE(found.memory.bytes[1], host);
}

// What an error names as the way out has been tried.
TEST_F(Placed, TooLittleMemoryNamesAWayThatFits) {
  InferenceOptions resident = with(2 * kMiB, 64 * kMiB);
  resident.choose = {};
  const std::string text = error_text([&] { plan(resident); });
  EXPECT_TRUE(names(text, "generate: with --offload-param none", "2.00 MiB", "--offload-param host", " fits"));
  InferenceOptions open = with(2 * kMiB, 64 * kMiB);
  open.choose.prefetch = true;
  open.prefetch_bytes = EngineOptions{}.prefetch_bytes;
  const InferencePlan found = plan(open);
  EXPECT_TRUE(names(text, placement_flags(found.options)));
  InferenceOptions again = found.options;
  again.choose = {};
  EXPECT_LE(plan(again).memory.bytes[0], 2 * kMiB);
  again.device_bytes = 64 * kMiB;
  again.drafts = Drafts::wanted;
  again.draft_place = Place::host;
  again.host_bytes = plan(again).memory.bytes[1] - 1;
  EXPECT_TRUE(names(error_text([&] { plan(again); }), "--speculate off fits"));
}

// Where no placement fits in the budgets, but the machine has more.
TEST_F(Placed, BudgetsThatAreTooSmallForAnyPlacementAreToldWhatIsEnough) {
  machine_bytes_ = 64 * kMiB;
  const std::string text = error_text([&] { plan(with(1000, 60 * kMiB)); });
  EXPECT_TRUE(names(text, "; --offload-param host --prefetch 0 --memory device=", ",host=60MiB fits"));
  const std::size_t at = text.find("device=", text.find("--memory"));
  const std::int64_t device = std::stoll(text.substr(at + 7)) * kMiB;
  InferenceOptions again = with(device, 60 * kMiB);
  EXPECT_LE(plan(again).memory.bytes[0], device);
  EXPECT_FALSE(error_text([&] { plan(with(device - kMiB, 60 * kMiB)); }).empty());
  // What the device takes is not there for the host.
  EXPECT_TRUE(names(error_text([&] { plan(with(1000, 64 * kMiB)); }), " fits"));
  machine_bytes_ = kMiB;
  EXPECT_TRUE(names(error_text([&] { plan(with(1000, kMiB)); }), "raise --memory", "--nvme-path"));
}

// lru is refused beside weights that stay on the device, which a search may have put there.
TEST(InferenceOptions, FlagsOfAPlacementAreAcceptedAgain) {
  InferenceOptions options;
  options.command = "generate";
  options.cache = CachePolicy::lru;
  EXPECT_FALSE(names(placement_flags(options), "lru"));
  options.params.host = 0.5;
  EXPECT_TRUE(names(placement_flags(options), "--offload-param host=0.5", "--cache-policy lru"));
}

TEST(InferenceOptions, ThatContradictEachOtherAreRefused) {
  InferenceOptions options;
  options.command = "generate";
  options.params.nvme = 1;
  EXPECT_TRUE(names(error_text([&] { check(options); }), "--offload-param nvme", "--nvme-path"));
  options = {};
  options.cache = CachePolicy::lru;
  EXPECT_TRUE(names(error_text([&] { check(options); }), "--cache-policy lru", "--placement auto"));
  options = {};
  options.blocks_per_unit = 0;
  EXPECT_TRUE(names(error_text([&] { check(options); }), "--blocks-per-unit 0"));
}

}  // namespace
}  // namespace zeepo
