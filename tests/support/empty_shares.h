// Runs of `zeepo train` with shares of the states that come to nothing: they have the bits of the resident run.
#pragma once

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/places.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_data.h"

namespace zeepo {

using Words = std::vector<std::string>;

// Of two small steps, started by `launcher` (empty: as a process of its own); empty when the job failed.
inline std::string hash_with_shares(const Words& launcher, const Words& options) {
  const auto model = golden("llama-tiny");
  Words words = launcher;
  words.push_back(kProgram);
  for (const std::string& word :
       Words{"train", "--model", model, "--data", model / "tokens.bin", "--seq-len", "4", "--micro-batch", "1",
             "--steps", "2", "--device", "cpu", "--memory", "device=64MiB,host=64MiB", "--threads", "1", "--log", "-"})
    words.push_back(word);
  words.insert(words.end(), options.begin(), options.end());
  const auto finished = run_program(words.front(), {words.begin() + 1, words.end()});
  EXPECT_EQ(finished.code, 0) << finished.err;
  std::string hash;
  std::istringstream lines(finished.out);
  for (std::string line; std::getline(lines, line);) hash = nlohmann::json::parse(line).value("weights_hash", hash);
  return hash;
}

// `common` goes with each of the shares, and with the resident run.
inline void expect_resident_bits(const Words& launcher, const Words& common, const std::vector<Words>& shares) {
  const TestDirectory files;
  const std::string resident = hash_with_shares(launcher, common);
  EXPECT_NE(resident, "");
  for (Words options : shares) {
    options.insert(options.end(), common.begin(), common.end());
    options.insert(options.end(), {"--nvme-path", files.path().string()});
    EXPECT_EQ(hash_with_shares(launcher, options), resident) << options[0] << " " << options[1];
  }
}

}  // namespace zeepo
