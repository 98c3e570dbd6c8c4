// Training runs on drawn numbers of ranks, stages and placements, which change no bit.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/drawn.h"
#include "tests/support/run_record.h"
#include "tests/support/test_directory.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/trainer.h"

namespace zeepo {

class DrawnRuns : public Drawn {
 protected:
  // The ranks, with this many micro-batches a step.
  int arrange(TrainOptions& options, std::int64_t micro_batches, const std::vector<int>& numbers = {1, 2, 3}) {
    const int ranks = one_of(numbers);
    options.grad_accum = micro_batches / ranks;
    options.stage = one_of<int>({0, 1, 2, 3});
    options.prefetch_bytes = one_of<std::int64_t>({0, 1 << 14, 1 << 20});
    const auto shares = [&] { return one_of<Shares>({{}, {.host = 1}, {.nvme = 1}, {.host = 0.4, .nvme = 0.3}}); };
    options.placement.params = shares();
    options.placement.optimizer = shares();
    options.nvme_paths = {files_.path()};
    options.piece_elements = EngineOptions::kPieceAlignment;
    options.host_step_share = one_of<std::optional<double>>({std::nullopt, 0.0});
    return ranks;
  }
  // And where activations wait.
  int arrange_all(TrainOptions& options, std::int64_t micro_batches) {
    const int ranks = arrange(options, micro_batches);
    options.placement.cache = one_of<CachePolicy>({CachePolicy::fixed, CachePolicy::lru});
    options.placement.activations = one_of<Place>({Place::device, Place::host});
    options.activation_checkpointing = one_of<int>({0, 1}) == 1;
    return ranks;
  }
  static std::string described(const TrainOptions& o, int ranks) {
    return fmt::format("{} on {} ranks, stage {}, {}, clip {}, params {}, optimizer {}, prefetch {}, {} cache",
                       o.model.string(), ranks, o.stage, name_of(o.dtype), o.clip, text_of(o.placement.params),
                       text_of(o.placement.optimizer), o.prefetch_bytes,
                       o.placement.cache == CachePolicy::lru ? "lru" : "fixed");
  }

  std::string log() const { return (files_.path() / "log.jsonl").string(); }
  // The log's record; what is printed is kept in printed_.
  RunRecord train(TrainOptions options, int ranks = 1) {
    options.log = log();
    std::filesystem::remove(options.log);  // a resumed run goes on in its log
    testing::internal::CaptureStderr();
    try {
      ThreadsWorld world(ranks);
      run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
    } catch (...) {
      printed_ = testing::internal::GetCapturedStderr();
      throw;
    }
    printed_ = testing::internal::GetCapturedStderr();
    return read_record(options.log);
  }
  // Of the last run's log.
  std::vector<nlohmann::json> events(const std::string& kind) const {
    std::vector<nlohmann::json> found;
    std::istringstream lines(read_text(log()));
    for (std::string line; std::getline(lines, line);)
      if (nlohmann::json event = nlohmann::json::parse(line); event.at("event") == kind)
        found.push_back(std::move(event));
    return found;
  }

  const TestDirectory files_;
  std::string printed_;
};

}  // namespace zeepo
