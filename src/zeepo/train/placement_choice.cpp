#include "zeepo/train/placement_choice.h"

namespace zeepo {

PlacementChoice placement_by_bytes(const RunSetup& setup, const std::vector<RankRoom>& rooms, Communicator&) {
  return {.setup = choose_placement(setup, rooms), .why = "the fastest tiers first"};
}

nlohmann::ordered_json to_json(const PlacementChoice& choice) {
  nlohmann::ordered_json json{{"by", choice.by == PlacementChoice::By::time ? "time" : "bytes"}, {"why", choice.why}};
  if (!choice.probe_date.empty()) json["probe"] = choice.probe_date;
  if (choice.step_seconds) json["step_seconds"] = *choice.step_seconds;
  return json;
}

}  // namespace zeepo
