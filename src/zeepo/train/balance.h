// Shares of the batch by the ranks' speeds (--balance): so that a slower rank does not hold up the others.
//
// A micro-step has --micro-batch x ranks rows. Each rank computes as many of them as its speed allows, at least one,
// and all are done at about the same time. The samples of a step stay the same, and its loss the mean over all of their
// tokens; which rank sums which rows, and so the last bits, depends on the shares.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "zeepo/comm/gpu_place.h"
#include "zeepo/train/run_setup.h"

namespace zeepo {

// Of `rows`, at least as many as there are speeds: those that let the last rank be done soonest, each at least one.
std::vector<std::int64_t> share_rows(std::int64_t rows, std::span<const double> speeds);

// Speeds beside the fastest, in twentieths: what is measured anew should come out the same.
std::vector<double> relative_speeds(std::span<const double> rates);

// The setup with shares, where --balance asks for them: by the speeds that it gives; else by `known` ones, where there
// are any; else by those that all ranks measure now, together. Throws UsageError for another number of speeds than
// ranks.
RunSetup balance_ranks(const RunSetup& setup, const std::vector<double>& known, const GpuPlace& place,
                       Communicator& communicator);

// For the plan: {"speeds":[1,0.5],"rows":[11,5]}, and for people; empty where shares are alike.
nlohmann::ordered_json balance_json(const RunSetup& setup);
std::string balance_text(const RunSetup& setup);

}  // namespace zeepo
