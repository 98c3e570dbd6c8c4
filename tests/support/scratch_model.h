// A directory with the config of a small GPT-2, to be trained from scratch, and tokens to train it on.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/test_directory.h"
#include "zeepo/train/options.h"

namespace zeepo {

class ScratchModel {
 public:
  ScratchModel(int width, int layers, std::size_t vocabulary, std::size_t tokens) {
    const nlohmann::json config = {{"model_type", "gpt2"},    {"architectures", {"GPT2LMHeadModel"}},
                                   {"n_embd", width},         {"n_head", 4},
                                   {"n_layer", layers},       {"n_positions", 64},
                                   {"vocab_size", vocabulary}};
    directory_.write("config.json", config.dump());
    std::vector<std::uint16_t> ids;
    for (std::size_t i = 0; i < tokens; ++i) ids.push_back(static_cast<std::uint16_t>(i * i % vocabulary));
    directory_.write("tokens.bin", {reinterpret_cast<const char*>(ids.data()), 2 * ids.size()});
  }
  // One thread trains it from scratch and logs beside it.
  TrainOptions options() const {
    TrainOptions options;
    options.model = path();
    options.data = path() / "tokens.bin";
    options.from_scratch = true;
    options.threads = 1;
    options.log = (path() / "log.jsonl").string();
    return options;
  }
  const std::filesystem::path& path() const { return directory_.path(); }

 private:
  TestDirectory directory_;
};

}  // namespace zeepo
