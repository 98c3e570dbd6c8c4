#include "zeepo/zero/rank_report.h"

#include "zeepo/base/machine.h"

namespace zeepo {

nlohmann::ordered_json to_json(const Usage& usage) {
  nlohmann::ordered_json bytes;
  for (const Kind kind : kKinds) bytes[std::string(name_of(kind))] = usage[kind];
  bytes["total"] = usage.total;
  return bytes;
}

nlohmann::ordered_json rank_report(Session& session, const CommBytes& sent) {
  const auto nothing = to_json(Usage{});  // there are no other tiers and links yet
  nlohmann::ordered_json rank;
  rank["rank"] = session.communicator().rank();
  rank["peak_bytes"] = {{"device", to_json(session.memory().peak())}, {"host", nothing}, {"nvme", nothing}};
  rank["comm_bytes"] = {
      {"all_gather", sent.all_gather}, {"reduce_scatter", sent.reduce_scatter}, {"all_reduce", sent.all_reduce}};
  rank["link_bytes"] = {{"host_to_device", 0}, {"device_to_host", 0}};
  rank["io_bytes"] = {{"read", 0}, {"write", 0}};
  rank["rss_bytes"] = peak_resident_bytes();
  return rank;
}

}  // namespace zeepo
