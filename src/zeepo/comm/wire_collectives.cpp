#include "zeepo/comm/wire_collectives.h"

#include <algorithm>
#include <cstring>

#include "zeepo/base/error.h"
#include "zeepo/comm/call.h"
#include "zeepo/comm/rank_sum.h"

namespace zeepo {
namespace {

constexpr std::int64_t kBlocksATask = 256;  // of the pool

// Messages of one size, one after another.
class Messages {
 public:
  Messages(std::span<std::byte> memory, std::size_t bytes) : memory_(memory), bytes_(bytes) {}
  std::span<std::byte> operator[](std::size_t i) const { return memory_.subspan(i * bytes_, bytes_); }
  std::span<std::byte> operator[](int i) const { return (*this)[static_cast<std::size_t>(i)]; }
  std::byte* data(std::size_t i) const { return memory_.data() + i * bytes_; }

 private:
  std::span<std::byte> memory_;
  std::size_t bytes_;
};

// Sends and receives whole parts, each at its place among all, in the route's phases.
void exchange_parts(Communicator& ranks, Call call, const std::vector<WirePhase>& phases, const Messages& parts) {
  for (const WirePhase& phase : phases) {
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (const Hop& hop : phase.out)
      for (const int part : hop.parts) out.push_back({hop.rank, parts[part]});
    for (const Hop& hop : phase.in)
      for (const int part : hop.parts) in.push_back({hop.rank, parts[part]});
    ranks.exchange(call, out, in);
    ++call.header.step;
  }
}

void copy_held(const WirePlan& plan, const Messages& parts, const Messages& copy, bool to_copy) {
  std::size_t at = 0;
  for (const int part : plan.gather.held) {
    const auto from = to_copy ? parts[part] : copy[at], to = to_copy ? copy[at] : parts[part];
    std::ranges::copy(from, to.begin());
    ++at;
  }
}

std::span<std::byte> bytes_of(View view) { return {view.as<std::byte>(), view.bytes()}; }

template <class T>
void round_all(float* values) {
  for (std::int64_t i = 0; i < kWireBlock; ++i) values[i] = to_float(from_float<T>(values[i]));
}

void add(float* sum, const float* values) {
  for (std::int64_t i = 0; i < kWireBlock; ++i) sum[i] += values[i];
}

// A term of a sum: a message, or values as they are.
struct Term {
  std::optional<WireMessage> message;
  ConstView values;

  void read(std::int64_t block, float* out) const {
    message ? message->read_block(block, out) : load_block(values, block * kWireBlock, out);
  }
};

// sum = the first term, plus the others in their order.
void sum_block(std::span<const Term> terms, std::int64_t block, float* sum) {
  float values[kWireBlock];
  terms[0].read(block, sum);
  for (const Term& term : terms.subspan(1)) {
    term.read(block, values);
    add(sum, values);
  }
}

// A reduction under way: what came from the peers, and the sums of the node.
class Reduction {
 public:
  Reduction(Communicator& ranks, CpuStream& stream, const WirePlan& plan, WireType type, ConstView full,
            std::span<std::byte> scratch, const Label& label)
      : ranks_(ranks),
        stream_(stream),
        plan_(plan),
        type_(type),
        full_(full),
        elements_(full.elements() / plan.nodes.ranks()),
        part_bytes_(message_bytes(type, full.dtype, elements_)),
        out_(scratch, part_bytes_),
        in_(scratch.subspan(out_parts(plan) * part_bytes_), part_bytes_),
        label_(label) {}

  static std::size_t out_parts(const WirePlan& plan) {
    return std::max(parts_in(plan.reduce.within.out), parts_in(plan.reduce.between.out));
  }
  static std::size_t in_parts(const WirePlan& plan) {
    return parts_in(plan.reduce.within.in) + parts_in(plan.reduce.between.in);
  }

  void send_to_peers(View error) {
    if (plan_.nodes.nodes() == plan_.nodes.ranks()) return;
    std::size_t at = 0;
    for (const Hop& hop : plan_.reduce.within.out)
      for (const int part : hop.parts)
        encode(stream_, type_, slice(full_, part), label_.id, out_.data(at++), error ? slice(error, part) : View{});
    exchange(ExchangePhase::reduce_within, plan_.reduce.within, 0);
  }

  // A rank alone on its node has no sum but its own gradients: `error` is of these.
  void send_to_owners(View error) {
    if (plan_.nodes.nodes() == 1) return;
    const bool alone = plan_.nodes.peers_of(plan_.rank).size() == 1;
    std::size_t at = 0;
    for (const Hop& hop : plan_.reduce.between.out) {
      const int part = hop.parts[0];
      if (alone)
        encode(stream_, type_, slice(full_, part), label_.id, out_.data(at++), error ? slice(error, part) : View{});
      else
        encode_sum(part, out_.data(at++));
    }
    exchange(ExchangePhase::reduce_between, plan_.reduce.between, parts_in(plan_.reduce.within.in));
  }

  void sum_into(View shard, const SumInto& how) {
    const std::vector<Term> own = node_terms(plan_.rank);
    std::vector<std::optional<Term>> nodes(static_cast<std::size_t>(plan_.nodes.nodes()));  // none: its own
    std::size_t at = parts_in(plan_.reduce.within.in);
    for (const Hop& hop : plan_.reduce.between.in)
      nodes[static_cast<std::size_t>(plan_.nodes.node_of(hop.rank))] = message(at++, hop.rank);
    for_blocks([&](std::int64_t block) {
      float sum[kWireBlock], values[kWireBlock];
      bool any = how.onto;
      if (any) load_block(shard, block * kWireBlock, sum);
      for (const auto& node : nodes) {
        float* const to = any ? values : sum;
        node ? node->read(block, to) : sum_block(own, block, to);
        if (any) add(sum, values);
        any = true;
      }
      if (how.rounded_to == DType::bf16) round_all<bf16>(sum);
      if (how.rounded_to == DType::f16) round_all<f16>(sum);
      store_block(sum, shard, block * kWireBlock);
    });
  }

 private:
  void encode_sum(int part, std::byte* message) {
    const std::vector<Term> terms = node_terms(part);
    WireWriter writer(type_, elements_, label_.id, message);
    for_blocks([&](std::int64_t block) {
      float sum[kWireBlock];
      sum_block(terms, block, sum);
      writer.write_block(block, sum);
    });
    writer.finish();
  }

  template <class V>
  V slice(V whole, int part) const {
    return part_of(whole, part, plan_.nodes.ranks());
  }

  // The ranks of this node in their order, of a part that is summed here.
  std::vector<Term> node_terms(int part) const {
    const auto place =
        static_cast<std::size_t>(std::ranges::find(plan_.reduce.summed, part) - plan_.reduce.summed.begin());
    std::vector<Term> terms;
    for (const int peer : plan_.nodes.peers_of(plan_.rank)) {
      if (peer == plan_.rank) {
        terms.push_back({{}, slice(full_, part)});
        continue;
      }
      std::size_t first = 0;
      for (const Hop& hop : plan_.reduce.within.in) {
        if (hop.rank == peer) break;
        first += hop.parts.size();
      }
      terms.push_back(message(first + place, peer));
    }
    return terms;
  }

  Term message(std::size_t at, int from) const {
    return {WireMessage(type_, elements_, in_.data(at), from, label_), {}};
  }

  void exchange(ExchangePhase phase, const WirePhase& hops, std::size_t first_in) {
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (const Hop& hop : hops.out)
      for (std::size_t i = 0; i < hop.parts.size(); ++i) out.push_back({hop.rank, out_[out.size()]});
    for (const Hop& hop : hops.in)
      for (std::size_t i = 0; i < hop.parts.size(); ++i) in.push_back({hop.rank, in_[first_in + in.size()]});
    ranks_.exchange(exchange_call(type_, phase, part_bytes_, label_), out, in);
  }

  template <class F>
  void for_blocks(F&& f) {
    stream_.pool().for_range((elements_ + kWireBlock - 1) / kWireBlock, kBlocksATask,
                             [&](std::int64_t begin, std::int64_t end) {
                               for (std::int64_t block = begin; block < end; ++block) f(block);
                             });
  }

  Communicator& ranks_;
  CpuStream& stream_;
  const WirePlan& plan_;
  WireType type_;
  ConstView full_;
  std::int64_t elements_;
  std::size_t part_bytes_;
  Messages out_, in_;
  const Label& label_;
};

}  // namespace

WirePlan wire_plan(const NodeMap& nodes, int rank, GatherWay way) {
  return {nodes, rank, gather_route(nodes, rank, way), reduce_route(nodes, rank)};
}

std::size_t node_copy_bytes(const WirePlan& plan, std::size_t part_bytes) {
  return plan.nodes.nodes() > 1 ? plan.gather.held.size() * part_bytes : 0;
}

void gather_by_messages(Communicator& ranks, CpuStream& stream, const WirePlan& plan, const WireGather& how,
                        ConstView shard, View full, const Label& label) {
  all_gather_call(plan.nodes.ranks(), shard, full, label);  // the views fit each other
  const std::int64_t n = shard.elements();
  const std::size_t bytes = message_bytes(how.type, full.dtype, n);
  const bool coded = how.type != WireType::same;
  const Messages parts(coded ? how.messages : bytes_of(full), bytes);
  const Messages copy(how.node_copy, bytes);
  if (how.from == GatherFrom::ranks) {
    if (coded)
      encode(stream, how.type, shard, label.id, parts[plan.rank].data());
    else if (parts[plan.rank].data() != shard.data && bytes > 0)
      std::memcpy(parts[plan.rank].data(), shard.data, bytes);
    exchange_parts(ranks, exchange_call(how.type, ExchangePhase::gather_between, bytes, label), plan.gather.between,
                   parts);
    if (!how.node_copy.empty()) copy_held(plan, parts, copy, true);
  } else {
    copy_held(plan, parts, copy, false);
  }
  exchange_parts(ranks, exchange_call(how.type, ExchangePhase::gather_within, bytes, label), plan.gather.within, parts);
  if (!coded) return;
  for (int rank = 0; rank < plan.nodes.ranks(); ++rank)
    WireMessage(how.type, n, parts[rank].data(), rank, label).decode(stream, part_of(full, rank, plan.nodes.ranks()));
}

SentBytes sent_by_gather(const WirePlan& plan, GatherFrom from, std::size_t part_bytes) {
  const SentBytes within = sent_in(plan.gather.within, plan.nodes, plan.rank, part_bytes);
  return from == GatherFrom::node_copy ? within
                                       : within + sent_in(plan.gather.between, plan.nodes, plan.rank, part_bytes);
}

std::size_t reduce_scratch_bytes(const WirePlan& plan, WireType type, std::int64_t shard_elements) {
  return (Reduction::out_parts(plan) + Reduction::in_parts(plan)) * message_bytes(type, DType::f32, shard_elements);
}

void reduce_by_messages(Communicator& ranks, CpuStream& stream, const WirePlan& plan, WireType type, ConstView full,
                        std::span<std::byte> scratch, View shard, View error, const Label& label, const SumInto& how) {
  reduce_scatter_call(plan.nodes.ranks(), full, full, shard, label, how);  // the views fit each other
  Reduction reduction(ranks, stream, plan, type, full, scratch, label);
  reduction.send_to_peers(error);
  reduction.send_to_owners(error);
  reduction.sum_into(shard, how);
}

SentBytes sent_by_reduce(const WirePlan& plan, std::size_t part_bytes) {
  return sent_in(plan.reduce.within, plan.nodes, plan.rank, part_bytes) +
         sent_in(plan.reduce.between, plan.nodes, plan.rank, part_bytes);
}

}  // namespace zeepo
