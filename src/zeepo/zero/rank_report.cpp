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

std::string table_of(const std::array<Usage, kPlaces.size()>& peaks,
                     const std::array<std::int64_t, kPlaces.size()>& budgets) {
  const auto row = [&](std::string_view name, const auto& cell) {
    std::string text = fmt::format("  {:<12}", name);
    for (const Place place : kPlaces)
      if (peaks[static_cast<std::size_t>(place)].total > 0)
        text += fmt::format("{:>12}", cell(static_cast<std::size_t>(place)));
    return text + "\n";
  };
  const auto size = [](std::int64_t bytes) { return bytes > 0 ? format_size(bytes) : "-"; };
  std::string text = row("memory", [](std::size_t i) { return std::string(name_of(kPlaces[i])); });
  for (const Kind kind : kKinds)
    if (std::ranges::any_of(peaks, [&](const Usage& peak) { return peak[kind] > 0; }))
      text += row(name_of(kind), [&](std::size_t i) { return size(peaks[i][kind]); });
  text += row("at once", [&](std::size_t i) { return size(peaks[i].total); });
  return text + row("budget", [&](std::size_t i) { return size(budgets[i]); });
}

nlohmann::ordered_json rank_report(Session& session, const CommBytes& sent, const LinkBytes& carried) {
  nlohmann::ordered_json rank;
  rank["rank"] = session.communicator().rank();
  for (const Place place : kPlaces) rank["peak_bytes"][std::string(name_of(place))] = to_json(session.peak(place));
  rank["comm_bytes"] = {{"all_gather", sent.all_gather},
                        {"reduce_scatter", sent.reduce_scatter},
                        {"all_reduce", sent.all_reduce},
                        {"between_nodes", sent.between_nodes}};
  rank["link_bytes"] = {{"host_to_device", carried.to_device}, {"device_to_host", carried.to_host}};
  rank["io_bytes"] = {{"read", carried.read}, {"write", carried.written}};
  rank["rss_bytes"] = peak_resident_bytes();
  return rank;
}

}  // namespace zeepo
