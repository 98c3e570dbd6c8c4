#include "zeepo/train/option_entries.h"
#include "zeepo/train/option_kinds.h"

namespace zeepo {

using namespace option_kinds;

void add_elastic_options(std::vector<TrainOption>& table) {
  constexpr OptionGroup kGroup = OptionGroup::ranks;
  table.push_back(flag(
      {.name = "--elastic",
       .group = kGroup,
       .help =
           "Start the ranks on --hosts and keep the run going: without hosts that are lost, with those that return, "
           "from the newest checkpoint",
       .effect = Effect::execution,
       .ranks = Ranks::may_differ},
      [](auto& o) -> auto& { return o.elastic.wanted; }));
  table.push_back(path(
      {.name = "--hosts",
       .group = kGroup,
       .help = "Of --elastic, as node1,node2:4 (ranks) or a file with a host a line, node2 slots=4",
       .otherwise = "localhost",
       .effect = Effect::execution,
       .ranks = Ranks::may_differ},
      [](auto& o) -> auto& { return o.elastic.hosts; }));
  table.push_back(whole({.name = "--ranks-per-host",
                         .group = kGroup,
                         .help = "Of --elastic, where --hosts does not say",
                         .effect = Effect::execution,
                         .ranks = Ranks::may_differ},
                        [](auto& o) -> auto& { return o.elastic.ranks_per_host; }, {.least = 1, .most = 4096}));
}

}  // namespace zeepo
