#include "zeepo/zero/engine_options.h"

#include <string>
#include <string_view>
#include <vector>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

// "same, int8": the names of those that pass.
template <class Test>
std::string formats_that(const Test& pass) {
  std::vector<std::string_view> names;
  for (const WireFormat& format : kWireFormats)
    if (pass(format)) names.push_back(format.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void check(const EngineOptions& options) {
  if (options.accumulation < 1) throw Error("engine: accumulation {}: must be at least 1", options.accumulation);
  if (options.stage < 0 || options.stage > 3) throw Error("engine: stage {}: must be 0, 1, 2 or 3", options.stage);
  if (options.use == Use::train) check(options.optimizer);
  if (options.stored_as != CodedType::same && options.use == Use::train)
    throw Error("engine: weights stored in {} cannot be trained; store them as they are", name_of(options.stored_as));
  if (options.stored_as != CodedType::same && (options.wire.coded() || options.wire.node_copy))
    throw Error("engine: weights stored in {} are sent as they are stored; leave out other codes and copies in nodes",
                name_of(options.stored_as));
  if (options.in_files && options.use == Use::train)
    throw Error("engine: weights in files of others cannot be trained; keep copies of them");
  if (options.reduce == Reduce::last && options.stage > 1)
    throw Error("engine: stage {} keeps no whole gradients to sum before reducing; use stage 0 or 1, or reduce each",
                options.stage);
  const bool sums_on_device = options.step_below_on == StepSide::device || options.placement.optimizer.on_device();
  if (options.sum_order == SumOrder::local && !sums_on_device)
    throw Error(
        "engine: sum order local: matrix products cannot add to gradient sums that are offloaded; let the device step "
        "offloaded state, or use the global order");
  if (options.piece_elements < 1 || options.piece_elements % EngineOptions::kPieceAlignment != 0)
    throw Error("engine: pieces of {} elements: must be a multiple of {}", options.piece_elements,
                EngineOptions::kPieceAlignment);
  const bool in_backward = options.step_phase == StepPhase::in_backward;
  if (in_backward && (options.clip > 0 || options.dtype == DType::f16))
    throw Error("engine: clip {} in {}: steps in the backward pass cannot be clipped or scaled; step after it",
                options.clip, name_of(options.dtype));
  if (in_backward && options.on_nan == OnNan::skip)
    throw Error("engine: steps in the backward pass cannot be skipped when a loss is not finite; step after it");
  if (!(options.host_share >= 0 && options.host_share <= 1))
    throw Error("engine: a share of {} stepped by the host: must be from 0 to 1", options.host_share);
  if (options.host_share > 0 && options.host_pieces_under_way < 1)
    throw Error("engine: a share of {} stepped by the host, with {} pieces under way: must be at least 1",
                options.host_share, options.host_pieces_under_way);
  if (options.host_share > 0 && in_backward)
    throw Error("engine: a share of {} stepped by the host beside the device: not in a backward pass",
                options.host_share);
  if (options.wire.coded() && options.stage == 0)
    throw Error("engine: coded weights or gradients at stage 0, which keeps all of them exactly: use stage 1, 2 or 3");
  if (!format_of(options.wire.gather).for_weights)
    throw Error("engine: weights gathered in {}: must be one of {}", name_of(options.wire.gather),
                formats_that([](const WireFormat& format) { return format.for_weights; }));
  if (options.wire.feedback && (options.wire.reduce == WireType::same || options.dtype == DType::f16))
    throw Error("engine: errors fed back need gradients in one of {}, and no loss scale that changes",
                formats_that([](const WireFormat& format) { return format.code_bits > 0; }));
  if (options.wire.node_copy && options.stage != 3 && options.placement.params.on_device())
    throw Error("engine: a copy of the weights in each node at stage {}, which keeps all of them: use stage 3",
                options.stage);
  if (options.wire.node_size < 0) throw Error("engine: nodes of {} ranks: must be at least 1", options.wire.node_size);
  if (options.pieces_under_way < 1)
    throw Error("engine: {} pieces under way: must be at least 1", options.pieces_under_way);
}

}  // namespace zeepo
