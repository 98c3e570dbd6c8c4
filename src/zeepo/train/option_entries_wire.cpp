#include <algorithm>
#include <iterator>

#include "zeepo/comm/wire_codec.h"
#include "zeepo/train/option_entries.h"
#include "zeepo/train/option_kinds.h"

namespace zeepo {

using namespace option_kinds;

namespace {

std::vector<WireFormat> formats_for_weights() {
  std::vector<WireFormat> formats;
  std::ranges::copy_if(kWireFormats, std::back_inserter(formats), &WireFormat::for_weights);
  return formats;
}

template <class List>
std::vector<WireFormat> coded(const List& list) {
  std::vector<WireFormat> formats;
  std::ranges::copy_if(list, std::back_inserter(formats), [](const auto& format) { return format.code_bits > 0; });
  return formats;
}

TrainOption balance(TrainOption option) {
  const std::string label = label_of(option);
  option = other(
      std::move(option),
      [](const std::string& named, const std::string& text, TrainOptions& o) {
        o.balance = {.wanted = text != "off", .speeds = {}};
        if (text == "off" || text == "auto") return;
        for (std::size_t at = 0; at <= text.size();) {
          const std::size_t end = std::min(text.find(',', at), text.size());
          o.balance.speeds.push_back(parse_number(named, text.substr(at, end - at)));
          at = end + 1;
        }
      },
      [](const TrainOptions& o) {
        if (!o.balance.speeds.empty()) return fmt::format("{}", fmt::join(o.balance.speeds, ","));
        return std::string(o.balance.wanted ? "auto" : "off");
      });
  option.check = [label](const TrainOptions& o) {
    for (const double speed : o.balance.speeds)
      if (!(speed > 0) || std::isinf(speed)) throw UsageError("{} {}: a speed must be a number above 0", label, speed);
  };
  return option;
}

}  // namespace

void add_wire_options(std::vector<TrainOption>& table) {
  constexpr OptionGroup kGroup = OptionGroup::ranks;
  table.push_back(choice(
      {.name = "--gather-dtype",
       .group = kGroup,
       .help = fmt::format("How ranks send weights to each other: same, exactly; or {} with a scale "
                           "for every {} of them. Master weights stay exact",
                           names_of(choices_of(coded(formats_for_weights()))), kWireBlock),
       .deepspeed_also = {"zero_optimization.zero_quantized_weights"}},
      [](auto& o) -> auto& { return o.wire.gather; }, choices_of(formats_for_weights())));
  table.push_back(choice(
      {.name = "--reduce-dtype",
       .group = kGroup,
       .help = fmt::format("How ranks send gradients to each other: same, exactly; or {} with a scale for every "
                           "{} of them, summed in fp32 within each node and then between nodes",
                           names_of(choices_of(coded(kWireFormats))), kWireBlock),
       .deepspeed_also = {"zero_optimization.zero_quantized_gradients"}},
      [](auto& o) -> auto& { return o.wire.reduce; }, choices_of(kWireFormats)));
  table.push_back(flag(
      {.name = "--reduce-feedback",
       .group = kGroup,
       .help = "What --reduce-dtype loses of a rank's gradients is added to its next ones. Takes "
               "memory for all gradients on every rank"},
      [](auto& o) -> auto& { return o.wire.feedback; }));
  table.push_back(flag(
      {.name = "--node-copy",
       .group = kGroup,
       .help = "Stage 3: each node keeps a copy of all weights, shared out over its ranks; the "
               "backward pass gathers from that, and nothing is sent between nodes for it",
       .effect = Effect::execution,
       .deepspeed_also = {"zero_optimization.zero_hpz_partition_size"}},
      [](auto& o) -> auto& { return o.wire.node_copy; }));
  table.push_back(whole({.name = "--node-size",
                         .group = kGroup,
                         .help = "Ranks in a row that count as one node",
                         .otherwise = "the ranks on each machine",
                         .effect = Effect::execution,  // bits of coded sums are changes_of_sums' (resume.cpp)
                         .deepspeed_also = {"zero_optimization.zero_hpz_partition_size"}},
                        [](auto& o) -> auto& { return o.wire.node_size; }, {.least = 1, .absent = 0}));
  table.push_back(choice(
      {.name = "--gather-route",
       .group = kGroup,
       .help = "How gathered weights come to all nodes: direct, from each rank to every node; ring, from each node to "
               "the next; or auto, as the ranks measure at the start where there are three nodes or more. The same "
               "bits",
       .effect = Effect::execution},
      [](auto& o) -> auto& { return o.wire.gather_way; },
      {{"auto", GatherWay::automatic}, {"direct", GatherWay::direct}, {"ring", GatherWay::ring}}));
  table.push_back(balance({.name = "--balance",
                           .group = kGroup,
                           .help = "Rows of each micro-step by the ranks' speeds: off, --micro-batch each; auto, by "
                                   "what the ranks measure at the start; or a speed of each rank, as 1,1,0.5"}));
}

}  // namespace zeepo
