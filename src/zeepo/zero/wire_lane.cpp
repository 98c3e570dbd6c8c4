#include "zeepo/zero/wire_lane.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/comm/rank_sum.h"
#include "zeepo/memory/lower_tiers.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

HostRoom::HostRoom(Of of, std::size_t bytes, Kind kind) {
  if (bytes == 0) return;
  if (of == Of::device)
    on_device_ = Tensor({static_cast<std::int64_t>(bytes)}, DType::u8, kind);
  else
    on_host_ = Device::current().lower->host().allocate(bytes, kind);
}

std::span<std::byte> HostRoom::bytes() const {
  if (on_host_.defined()) return {on_host_.data(), on_host_.bytes()};
  if (!on_device_.defined()) return {};
  const View view = on_device_.view();
  return {view.as<std::byte>(), view.bytes()};
}

WireLane::WireLane(Communicator& ranks, const WireOptions& options)
    : ranks_(ranks),
      plan_(wire_plan(NodeMap::of(ranks, options.node_size), ranks.rank(), options.gather_way)),
      ring_(options.gather_way == GatherWay::ring),
      on_host_(Device::current().compute.plays() == Backend::cpu && ranks.on_device() == nullptr) {
  if (ranks.alone() || on_host_) return;
  if (ring_) throw Error("engine: gathers around a ring are for ranks on CPUs; on a GPU leave the ring out");
  if ((options.coded() || options.node_copy) && !Device::current().lower)
    throw Error("engine: coded messages of a GPU are made in host memory; make a Session with some");
}

bool WireLane::carries(const GatherWire& wire) const {
  return wire.type != WireType::same || !wire.node_copy.empty() || ring_ || (on_host_ && plan_.nodes.matter());
}

SentBytes WireLane::sent_by_gather(const GatherWire& wire, DType dtype, std::int64_t shard_elements) const {
  return zeepo::sent_by_gather(plan_, wire.from, message_bytes(wire.type, dtype, shard_elements));
}

SentBytes WireLane::sent_by_reduce(WireType type, DType dtype, std::int64_t shard_elements) const {
  return zeepo::sent_by_reduce(plan_, message_bytes(type, dtype, shard_elements));
}

void WireLane::take_room(const std::vector<Use>& uses, DType dtype, bool feedback) {
  const auto ranks = static_cast<std::size_t>(plan_.nodes.ranks());
  std::size_t messages = 0, values = 0;
  for (const Use& use : uses) {
    const std::size_t whole = message_bytes(WireType::same, dtype, use.shard_elements) * ranks;
    if (use.gathered_as != WireType::same)
      messages = std::max(messages, message_bytes(use.gathered_as, dtype, use.shard_elements) * ranks);
    if (use.gathered_as != WireType::same || (use.node_copy && plan_.nodes.nodes() > 1))
      values = std::max(values, whole);
    if (use.reduced_as == WireType::same) continue;
    messages = std::max(messages, reduce_scratch_bytes(plan_, use.reduced_as, use.shard_elements));
    values = std::max(values,
                      whole + message_bytes(WireType::same, DType::f32, use.shard_elements) + (feedback ? whole : 0));
  }
  messages_ = HostRoom(place(), messages, Kind::working);
  if (on_host_ || values == 0) return;
  values_ = HostRoom(place(), values, Kind::working);
  dispatch(Device::current().compute, [&](auto& s) { copies_ = make_copy_lane(s); });
}

HostRoom WireLane::node_copy_room(WireType type, DType dtype, std::int64_t shard_elements) const {
  return HostRoom(place(), node_copy_bytes(plan_, message_bytes(type, dtype, shard_elements)), Kind::params);
}

void WireLane::copy(std::vector<LinkCopy> copies) {
  std::erase_if(copies, [](const LinkCopy& one) { return one.bytes == 0; });
  copies_->copy(copies);
}

void WireLane::gather(const Point& start, const GatherWire& wire, ConstView shard, View full, const Label& label) {
  const WireGather how{wire.type, wire.from, messages_.bytes(), wire.node_copy};
  if (on_host_) return gather_by_messages(ranks_, stream_, plan_, how, shard, full, label);
  const View values{values_.bytes().data(), full.dtype, full.shape};
  const View own = part_of(values, plan_.rank, plan_.nodes.ranks());
  copies_->start_after(start);
  if (wire.from == GatherFrom::ranks) copy({{shard.data, own.data, shard.bytes()}});
  gather_by_messages(ranks_, stream_, plan_, how, own, values, label);
  copy({{values.data, full.data, full.bytes()}});
}

void WireLane::reduce(const Point& start, WireType type, ConstView full, View shard, View error, const Label& label,
                      const SumInto& how) {
  if (on_host_)
    return reduce_by_messages(ranks_, stream_, plan_, type, full, messages_.bytes(), shard, error, label, how);
  std::byte* const at = values_.bytes().data();
  const View values{at, full.dtype, full.shape}, sum{at + full.bytes(), shard.dtype, shard.shape};
  const View lost = error ? View{at + full.bytes() + shard.bytes(), error.dtype, error.shape} : View{};
  const std::size_t lost_bytes = error ? error.bytes() : 0;
  copies_->start_after(start);
  copy({{full.data, values.data, full.bytes()},
        {shard.data, sum.data, how.onto ? shard.bytes() : 0},
        {error.data, lost.data, lost_bytes}});
  reduce_by_messages(ranks_, stream_, plan_, type, values, messages_.bytes(), sum, lost, label, how);
  copy({{sum.data, shard.data, shard.bytes()}, {lost.data, error.data, lost_bytes}});
}

}  // namespace zeepo
