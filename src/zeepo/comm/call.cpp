#include "zeepo/comm/call.h"

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

std::string describe(ConstView view) { return fmt::format("{} {}", name_of(view.dtype), view.shape.str()); }

Call make_call(Op op, ConstView whole, DType result, int root, const Label& label) {
  return {{op, static_cast<std::int32_t>(whole.dtype), static_cast<std::int32_t>(result), root,
           static_cast<std::int64_t>(whole.bytes()), label.id, 0, 0, 0, 0, 0},
          label.what};
}

std::string_view name_of(Op op) {
  switch (op) {
    case Op::all_gather: return "all-gather";
    case Op::reduce_scatter: return "reduce-scatter";
    case Op::all_reduce: return "all-reduce";
    case Op::broadcast: return "broadcast";
    case Op::finish: return "the end of the job";
    case Op::exchange: return "exchange";
  }
  return "?";
}

std::string_view name_of(ExchangePhase phase) {
  switch (phase) {
    case ExchangePhase::gather_between: return "all-gather between nodes";
    case ExchangePhase::gather_within: return "all-gather within nodes";
    case ExchangePhase::reduce_within: return "reduce-scatter within nodes";
    case ExchangePhase::reduce_between: return "reduce-scatter between nodes";
  }
  return "?";
}

}  // namespace

Call all_gather_call(int ranks, ConstView shard, ConstView full, const Label& label) {
  if (shard.dtype != full.dtype || shard.elements() * ranks != full.elements())
    throw Error("all-gather of {}: shard {} and full {}: must be of one dtype, and full {} shards", label.what,
                describe(shard), describe(full), ranks);
  return make_call(Op::all_gather, full, full.dtype, 0, label);
}

Call reduce_scatter_call(int ranks, ConstView full, ConstView scratch, ConstView shard, const Label& label,
                         const SumInto& how) {
  if (!is_float(full.dtype) || !is_float(shard.dtype) || shard.elements() * ranks != full.elements())
    throw Error("reduce-scatter of {}: full {} and shard {}: must be fp32, bf16 or fp16, and full {} shards",
                label.what, describe(full), describe(shard), ranks);
  if (scratch.bytes() != full.bytes())
    throw Error("reduce-scatter of {}: scratch of {} bytes: must have the {} of full", label.what, scratch.bytes(),
                full.bytes());
  if (how.onto && (shard.dtype != DType::f32 || !is_float(how.rounded_to)))
    throw Error("reduce-scatter of {}: onto {}, rounded to {}: sums go on in fp32, and are rounded to a float dtype",
                label.what, describe(shard), name_of(how.rounded_to));
  Call call = make_call(Op::reduce_scatter, full, shard.dtype, 0, label);
  call.header.onto = how.onto ? 1 : 0;
  call.header.rounded_to = static_cast<std::int32_t>(how.rounded_to);
  return call;
}

Call all_reduce_call(ConstView x, const Label& label) {
  if (x.dtype != DType::f32) throw Error("all-reduce of {}: {}: must be fp32", label.what, describe(x));
  return make_call(Op::all_reduce, x, x.dtype, 0, label);
}

Call broadcast_call(int ranks, ConstView x, int root, const Label& label) {
  if (root < 0 || root >= ranks)
    throw Error("broadcast of {}: root {}: must be one of the {} ranks, from 0", label.what, root, ranks);
  return make_call(Op::broadcast, x, x.dtype, root, label);
}

Call exchange_call(WireType type, ExchangePhase phase, std::size_t part_bytes, const Label& label) {
  const auto u8 = static_cast<std::int32_t>(DType::u8);
  return {{Op::exchange, u8, u8, 0, static_cast<std::int64_t>(part_bytes), label.id, 0, 0,
           static_cast<std::int32_t>(phase), static_cast<std::int32_t>(type), 0},
          label.what};
}

std::string describe(const CallHeader& header, const std::string& what) {
  if (header.op == Op::finish) return std::string(name_of(header.op));
  if (header.op == Op::exchange) {
    const auto wire = static_cast<std::size_t>(header.wire);  // as another rank says
    return fmt::format("{}{} of {} bytes a part as {} for \"{}\" (id {})",
                       name_of(static_cast<ExchangePhase>(header.phase)),
                       header.step > 0 ? fmt::format(", step {},", header.step) : "", header.bytes,
                       wire < kWireFormats.size() ? kWireFormats[wire].name : "an unknown type", what, header.id);
  }
  std::string text =
      fmt::format("{} of {} bytes of {}", name_of(header.op), header.bytes, name_of(static_cast<DType>(header.dtype)));
  if (header.result != header.dtype) text += fmt::format(" into {}", name_of(static_cast<DType>(header.result)));
  if (header.onto != 0) text += " onto a sum";
  if (header.rounded_to != 0) text += fmt::format(" rounded to {}", name_of(static_cast<DType>(header.rounded_to)));
  if (header.op == Op::broadcast) text += fmt::format(" from rank {}", header.root);
  return text + fmt::format(" for \"{}\" (id {})", what, header.id);
}

int first_different(std::span<const CallHeader> headers) {
  for (std::size_t rank = 1; rank < headers.size(); ++rank)
    if (headers[rank] != headers[0]) return static_cast<int>(rank);
  return 0;
}

bool continues(const CallHeader& before, const CallHeader& next) {
  const auto are = [&](ExchangePhase first, ExchangePhase second) {
    return before.phase == static_cast<std::int32_t>(first) && next.phase == static_cast<std::int32_t>(second);
  };
  if (before.op != Op::exchange || next.op != Op::exchange) return false;
  CallHeader alike = next;
  alike.phase = before.phase;
  alike.step = before.step;
  if (alike != before) return false;
  if (next.step > 0) return next.phase == before.phase && next.step == before.step + 1;
  return are(ExchangePhase::gather_between, ExchangePhase::gather_within) ||
         are(ExchangePhase::reduce_within, ExchangePhase::reduce_between);
}

void throw_mismatch(int rank, const Call& call, const Call& first) {
  throw Error(
      "rank {} called {}, rank 0 called {}: every rank must make the same calls in the same order; do all have the "
      "same "
      "model, options and data?",
      rank, describe(call), describe(first));
}

}  // namespace zeepo
