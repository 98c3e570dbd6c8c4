// What a training run has left in its log.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "zeepo/base/file.h"

namespace zeepo {

struct RunRecord {
  std::vector<double> losses, norms;  // -1 for what is not a number
  std::string hash, comm;
  std::vector<nlohmann::json> ranks;
};

inline RunRecord read_record(const std::filesystem::path& log) {
  std::istringstream lines(read_text(log));
  RunRecord record;
  const auto number = [](const nlohmann::json& value) { return value.is_null() ? -1 : value.get<double>(); };
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event.at("event") == "plan") {
      record.comm = event.at("comm");
    } else if (event.at("event") == "step") {
      record.losses.push_back(number(event.at("loss")));
      record.norms.push_back(number(event.at("grad_norm")));
    } else if (event.at("event") == "summary") {
      record.hash = event.at("weights_hash");
      for (const auto& rank : event.at("ranks")) record.ranks.push_back(rank);
    }
  }
  return record;
}

// Rank 0 has used what its plan says. Of working memory the plan may have more: for reading the weights at the end.
inline void expect_planned(const nlohmann::json& plan, const RunRecord& record, const std::string& what) {
  for (const char* place : {"device", "host", "nvme"}) {
    const auto &planned = plan.at(place).at("bytes"), &used = record.ranks.at(0).at("peak_bytes").at(place);
    for (const char* kind : {"params", "grads", "optimizer", "activations"})
      EXPECT_EQ(used.at(kind), planned.at(kind)) << kind << " in " << place << ": " << what;
    for (const char* kind : {"working", "total"})
      EXPECT_LE(used.at(kind), planned.at(kind)) << kind << " in " << place << ": " << what;
  }
}

}  // namespace zeepo
