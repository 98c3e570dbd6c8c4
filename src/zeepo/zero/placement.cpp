#include "zeepo/zero/placement.h"

#include <fmt/format.h>

namespace zeepo {

std::string text_of(const Shares& shares) {
  if (shares == Shares{}) return "none";
  if (shares == Shares::all_in(Place::host)) return "host";
  if (shares == Shares::all_in(Place::nvme)) return "nvme";
  if (shares.nvme == 0) return fmt::format("host={}", shares.host);
  if (shares.host == 0) return fmt::format("nvme={}", shares.nvme);
  return fmt::format("host={},nvme={}", shares.host, shares.nvme);
}

}  // namespace zeepo
