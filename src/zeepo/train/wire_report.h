// How the ranks of a run send weights and gradients, and why so: for the plan.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "zeepo/train/run_setup.h"

namespace zeepo {

// {"nodes":2,"all_gather":{"route":"by nodes","dtype":"int8","why":".."},"reduce_scatter":{..},"node_copy":true}
nlohmann::ordered_json wire_json(const RunSetup& setup, Communicator& communicator);
// For people; empty where nothing is other than usual.
std::string wire_text(const RunSetup& setup, Communicator& communicator);

}  // namespace zeepo
