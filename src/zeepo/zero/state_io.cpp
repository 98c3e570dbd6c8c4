#include "zeepo/zero/state_io.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>

#include "zeepo/base/error.h"
#include "zeepo/device/copy.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"
#include "zeepo/zero/state_values.h"

namespace zeepo {
namespace {

constexpr std::int64_t kElementsAtOnce = 1 << 20;  // on their way in or out

Stream& host_stream() {
  const Device& device = Device::current();
  return device.lower ? device.lower->host_stream() : device.compute;
}

}  // namespace

StateIo::StateIo(const UnitPlan& units, const StatePlan& plan, StateStore& store, Collectives& collectives)
    : names_(units),
      plan_(plan),
      store_(store),
      collectives_(collectives),
      windows_(units, plan, store),
      places_(units) {}

std::vector<WeightSlice> StateIo::slices() const {
  std::vector<WeightSlice> result;
  for (const auto& [name, weight] : places_.by_name()) result.push_back(weight.slice);
  return result;
}

void StateIo::load(const WeightSource& source, const MomentSource* moments, const CodedSource& codes) {
  if (!Device::current().compute.dry()) {
    store_.clear_device_state();
    for (std::size_t u = 0; u < plan_.units.size(); ++u) {
      if (plan_.units[u].in_others_files) continue;
      plan_.units[u].form.coded() ? load_coded(u, source, codes) : load_unit(u, source, moments);
    }
  }
  const bool all_read = moments && plan_.steps_whole();
  if (plan_.ranks.alone || all_read) return;
  for (std::size_t u = 0; u < plan_.units.size(); ++u) share_whole(u);
}

// Values of a chunk of the unit, from source(slice, begin, out): zero in the padding.
template <class Source>
void StateIo::collect(std::size_t u, const Extent& chunk, const Source& source) {
  values_.resize(static_cast<std::size_t>(chunk.elements()));
  dispatch(host_stream(), [&](auto& s) { fill(s, View{values_.data(), DType::f32, {chunk.elements()}}, 0.0f); });
  host_stream().synchronize();
  for (const auto& own : places_.in_unit(u)) {
    const auto& [begin, elements, place] = own.place;
    const std::int64_t first = begin - place.offset;  // of the weight, where the unit begins
    in_parts(common({place.offset, place.offset + elements}, chunk), 0, kElementsAtOnce, [&](const Extent& part) {
      source(own.slice, first + part.begin,
             std::span(values_).subspan(static_cast<std::size_t>(part.begin - chunk.begin),
                                        static_cast<std::size_t>(part.elements())));
    });
  }
}

// This rank's shard, or with saved moments all that it steps, in chunks that files can take.
void StateIo::load_unit(std::size_t u, const WeightSource& source, const MomentSource* moments) {
  const UnitStates& states = plan_.units[u];
  const DType dtype = plan_.options.dtype;
  const Extent& loaded = moments && plan_.steps_whole() ? states.whole : states.own;
  in_parts(loaded, loaded.begin, plan_.options.piece_elements, [&](const Extent& chunk) {
    const std::int64_t n = chunk.elements();
    const HostWindow window =
        windows_.open(u, chunk, moments ? HostWindows::Access::state : HostWindows::Access::fresh);
    for (std::size_t i = 0; moments && i < window.states.moments.size(); ++i) {
      collect(u, chunk, [&](const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
        (*moments)(i, slice, begin, out);
      });
      store_moment(i == 0 ? MomentOrder::first : MomentOrder::second, values_, window.states.moments[i]);
    }
    collect(u, chunk, source);
    const View values{values_.data(), DType::f32, {n}};
    View remainder = window.states.remainder;
    if (const auto rest_dtype = remainder_dtype(dtype);
        rest_dtype && !remainder) {  // a trained weight is rounded in the same way
      rest_.resize(static_cast<std::size_t>(n) * size_of(*rest_dtype));
      remainder = {rest_.data(), *rest_dtype, {n}};
    }
    dispatch(host_stream(), [&](auto& s) {
      remainder ? write_master(s, values, {window.param, remainder}) : copy(s, values, window.param);
    });
    host_stream().synchronize();
    windows_.close(window);
  });
}

// The last chunk has the exact values behind its rows.
void StateIo::load_coded(std::size_t u, const WeightSource& source, const CodedSource& codes) {
  const UnitStates& states = plan_.units[u];
  const StoredForm& form = states.form;
  in_parts(states.own, states.own.begin, plan_.options.piece_elements, [&](const Extent& chunk) {
    const bool last = chunk.end == states.own.end;
    const std::size_t begin = form.code_bytes(chunk.begin - states.own.begin);
    const std::size_t end = last ? form.bytes() : form.code_bytes(chunk.end - states.own.begin);
    std::byte* const memory = windows_.open_stored(u, begin, end - begin);
    std::memset(memory, 0, end - begin);
    encode_rows(u, chunk, source, codes, memory);
    if (last) encode_exact(u, source, memory - begin);
    windows_.close_stored(u, begin, end - begin);
  });
}

void StateIo::encode_rows(std::size_t u, const Extent& chunk, const WeightSource& source, const CodedSource& codes,
                          std::byte* rows) {
  const StoredForm& form = plan_.units[u].form;
  for (const UnitParameter& parameter : names_.units[u].parameters) {
    if (stays_exact(parameter)) continue;
    const std::int64_t end = parameter.offset + coded_rows(parameter.shape.elements()) * kCodedRow;
    const Extent part = common({parameter.offset, end}, chunk);
    if (part.empty()) continue;
    const std::span to(rows + form.code_bytes(part.begin - chunk.begin), form.code_bytes(part.elements()));
    if (codes && codes(parameter, form.type(), (part.begin - parameter.offset) / kCodedRow, to)) continue;
    collect(u, part, source);
    dispatch(host_stream(), [&]<class S>(S& s) {
      if constexpr (std::is_same_v<S, CpuStream>) encode_weights(s, form.type(), values_, to.data());
    });
  }
}

void StateIo::encode_exact(std::size_t u, const WeightSource& source, std::byte* stored) {
  for (const auto& part : plan_.units[u].form.exact_parts(plan_.ranks.rank)) {
    collect(u, part.extent, source);
    const std::int64_t n = part.extent.elements();
    const View to{stored + part.offset, plan_.options.dtype, {n}};
    dispatch(host_stream(), [&](auto& s) { copy(s, View{values_.data(), DType::f32, {n}}, to); });
    host_stream().synchronize();
  }
}

// Where a rank keeps more than its shard, it gets the rest from the others.
void StateIo::share_whole(std::size_t u) {
  const UnitStates& states = plan_.units[u];
  const auto gather = [&](ConstView own, View all, const GatherWire& wire = {}) {
    PendingCollective done = collectives_.all_gather(own, all, names_.label("first weights", u), {}, wire);
    collectives_.wait(done);
  };
  if (states.params_whole)
    gather(store_.params(u).of(states.own).view(), store_.whole_params(u).view(), {.type = states.gathered_as});
  if (!states.trained || states.stepped != states.whole || !states.pieces[0].layout.remainder()) return;
  const PiecePlan& piece = states.pieces[0];
  const View remainder = piece.layout.views(store_.piece({u, 0}).state(), piece.extent.elements()).remainder;
  gather(part_of(remainder, states.own.begin, states.own.elements()), remainder);
}

void StateIo::read(const std::string& name, std::int64_t begin, std::span<float> out) {
  const PlacedWeight& weight = places_.of(name);
  const Extent wanted{begin, begin + static_cast<std::int64_t>(out.size())};
  for (const auto& [first, elements, place] : weight.places) {
    const Extent part = common({first, first + elements}, wanted);
    if (part.empty()) continue;
    read_part({place.unit, place.offset + part.begin - first},
              out.subspan(static_cast<std::size_t>(part.begin - begin), static_cast<std::size_t>(part.elements())));
  }
}

// What is read at once lies in one piece of the optimizer's state.
std::int64_t StateIo::read_elements() const { return std::gcd(kElementsAtOnce, plan_.options.piece_elements); }

void StateIo::take_room_to_read() const {
  if (plan_.ranks.alone) return;
  std::int64_t longest = 0;
  for (const auto& [name, weight] : places_.by_name())
    for (const auto& place : weight.places) longest = std::max(longest, place.elements);
  const Tensor room({std::min(longest, read_elements())}, DType::f32, Kind::working);
}

void StateIo::read_part(const UnitPlace& place, std::span<float> out) {
  const bool dry = Device::current().compute.dry();
  const std::int64_t shard = plan_.units[place.unit].own.elements();
  const std::int64_t first = place.offset, last = first + static_cast<std::int64_t>(out.size());
  for (int rank = 0; rank < plan_.ranks.size; ++rank) {
    const Extent wanted = common({first, last}, {rank * shard, (rank + 1) * shard});
    in_parts(wanted, rank * shard, read_elements(), [&](const Extent& part) {
      const auto values =
          out.subspan(static_cast<std::size_t>(part.begin - first), static_cast<std::size_t>(part.elements()));
      if (rank == plan_.ranks.rank && !dry) read_own(place.unit, part, values);
      if (plan_.ranks.alone) return;
      const Tensor fp32({part.elements()}, DType::f32, Kind::working);
      const View view = fp32.view();
      if (rank == plan_.ranks.rank) launch([&](auto& s) { copy_to_device(s, values.data(), view.data, view.bytes()); });
      Device::current().compute.synchronize();
      collectives_.broadcast(view, rank, names_.label("weights", place.unit));
      launch([&](auto& s) { copy_to_host(s, view.data, values.data(), view.bytes()); });
      Device::current().compute.synchronize();
      collectives_.check();
    });
  }
}

void StateIo::read_own(std::size_t u, const Extent& range, std::span<float> out) {
  if (plan_.units[u].form.coded())
    throw Error("weights stored in {} cannot be read exactly; read them from the model's own files",
                name_of(plan_.units[u].form.type()));
  if (plan_.units[u].in_others_files)
    throw Error("weights in files of others are not read by name here; read them from these files");
  const HostWindow window = windows_.open(u, range, HostWindows::Access::read);
  const View values{out.data(), DType::f32, {range.elements()}};
  dispatch(host_stream(), [&](auto& s) {
    window.states.remainder ? read_master(s, {window.param, window.states.remainder}, values)
                            : copy(s, window.param, values);
  });
  host_stream().synchronize();
}

std::string StateIo::hash(const WeightLook& look) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(hash.get());
  // One part is hashed while the next is read.
  std::array<std::vector<float>, 2> parts;
  std::array<Completion, 2> hashed;
  std::size_t turn = 0;
  Worker worker;
  for (const auto& entry : places_.by_name()) {
    const std::string& name = entry.first;
    hashed[1 - turn].wait();
    XXH3_128bits_update(hash.get(), name.data(), name.size());
    in_parts({0, entry.second.slice.shape.elements()}, 0, kElementsAtOnce, [&](const Extent& part) {
      auto& values = parts[turn];
      hashed[turn].wait();
      values.resize(static_cast<std::size_t>(part.elements()));
      read(name, part.begin, values);
      if (look) look(name, part.begin, values);
      hashed[turn] = worker.run(
          [&hash, &values] { XXH3_128bits_update(hash.get(), values.data(), values.size() * sizeof(float)); });
      turn = 1 - turn;
    });
  }
  hashed[1 - turn].wait();
  const auto digest = XXH3_128bits_digest(hash.get());
  return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
}

}  // namespace zeepo
