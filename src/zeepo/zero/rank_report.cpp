#include "zeepo/zero/rank_report.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/base/machine.h"
#include "zeepo/base/size.h"

namespace zeepo {

nlohmann::ordered_json to_json(const Usage& usage) {
  nlohmann::ordered_json bytes;
  for (const Kind kind : kKinds) bytes[std::string(name_of(kind))] = usage[kind];
  bytes["total"] = usage.total;
  return bytes;
}

std::string table_of(const std::array<Usage, kPlaces.size()>& peaks) {
  const auto row = [&](std::string_view name, const auto& value) {
    std::string text = fmt::format("  {:<12}", name);
    for (const Usage& peak : peaks)
      if (peak.total > 0) text += fmt::format("{:>12}", value(peak) > 0 ? format_size(value(peak)) : "-");
    return text + "\n";
  };
  std::string text = fmt::format("  {:<12}", "memory");
  for (const Place place : kPlaces)
    if (peaks[static_cast<std::size_t>(place)].total > 0) text += fmt::format("{:>12}", name_of(place));
  text += "\n";
  for (const Kind kind : kKinds)
    if (std::ranges::any_of(peaks, [&](const Usage& peak) { return peak[kind] > 0; }))
      text += row(name_of(kind), [&](const Usage& peak) { return peak[kind]; });
  return text + row("at once", [](const Usage& peak) { return peak.total; });
}

nlohmann::ordered_json rank_report(Session& session, const CommBytes& sent, const LinkBytes& carried) {
  nlohmann::ordered_json rank;
  rank["rank"] = session.communicator().rank();
  for (const Place place : kPlaces) rank["peak_bytes"][std::string(name_of(place))] = to_json(session.peak(place));
  rank["comm_bytes"] = {
      {"all_gather", sent.all_gather}, {"reduce_scatter", sent.reduce_scatter}, {"all_reduce", sent.all_reduce}};
  rank["link_bytes"] = {{"host_to_device", carried.to_device}, {"device_to_host", carried.to_host}};
  rank["io_bytes"] = {{"read", carried.read}, {"write", carried.written}};
  rank["rss_bytes"] = peak_resident_bytes();
  return rank;
}

}  // namespace zeepo
