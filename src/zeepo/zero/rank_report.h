// Where a rank's bytes were, for programs.
#pragma once

#include <nlohmann/json.hpp>

#include "zeepo/memory/tier.h"
#include "zeepo/zero/collectives.h"
#include "zeepo/zero/session.h"

namespace zeepo {

// {"params":..,"grads":..,...,"total":..}
nlohmann::ordered_json to_json(const Usage& usage);
// Kinds down, tiers across, and what there may be of each; those that hold nothing are left out.
std::string table_of(const std::array<Usage, kPlaces.size()>& peaks,
                     const std::array<std::int64_t, kPlaces.size()>& budgets);
// One element of the summary's "ranks": peaks by tier and kind, bytes sent, copied, read and written.
nlohmann::ordered_json rank_report(Session& session, const CommBytes& sent, const LinkBytes& carried);

}  // namespace zeepo
