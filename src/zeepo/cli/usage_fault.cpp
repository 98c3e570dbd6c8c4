#include "zeepo/cli/usage_fault.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "zeepo/base/say.h"
#include "zeepo/comm/launch.h"
#include "zeepo/zero/agreement.h"

namespace zeepo::cli {
namespace {

// Once, where all ranks say the same; else each with its rank.
void print_faults(const std::vector<std::string>& faults) {
  if (std::ranges::all_of(faults, [&](const std::string& fault) { return fault == faults[0]; })) {
    say("zeepo: {}\n", faults[0]);
    return;
  }
  for (std::size_t rank = 0; rank < faults.size(); ++rank)
    if (!faults[rank].empty()) say("zeepo: rank {}: {}\n", rank, faults[rank]);
}

}  // namespace

void share_usage_fault(Communicator& ranks, const std::string& own) {
  const auto faults = gather_texts(ranks, own);
  if (std::ranges::all_of(faults, &std::string::empty)) return;
  if (ranks.rank() == 0) print_faults(faults);
  ranks.finish();
  throw CLI::RuntimeError(kUsageError);
}

void report_usage_fault(const std::string& message) {
  try {
    const Launch launch = detect_launch();
    if (launch.size > 1) {
      const auto ranks = make_communicator(launch);
      share_usage_fault(*ranks, message);
    }
  } catch (const CLI::RuntimeError&) {
    return;
  } catch (const std::exception&) {
    // The ranks cannot be connected: what this one has to say is said all the same.
  }
  say("zeepo: {}\n", message);
}

}  // namespace zeepo::cli
