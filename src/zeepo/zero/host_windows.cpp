#include "zeepo/zero/host_windows.h"

#include <algorithm>
#include <cstring>

#include "zeepo/device/copy.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

constexpr std::size_t kStateBuffer = 0, kParamBuffer = 1, kFirstMomentCopy = 2;

void to_device(const View& from, const View& to) {
  launch([&](auto& s) { copy_to_device(s, from.data, to.data, to.bytes()); });
  Device::current().compute.synchronize();
}

// Whole pages, on all of the host's cores. There are none for the state of an optimizer that keeps nothing.
void clear(Stream& host, std::byte* memory, std::size_t page_bytes) {
  if (page_bytes == 0) return;
  const auto words = static_cast<std::int64_t>(page_bytes / sizeof(float));
  dispatch(host, [&](auto& s) { fill(s, View{memory, DType::f32, {words}}, 0.0f); });
  host.synchronize();
}

}  // namespace

// Buffers hold a piece of state in files, and as many weights.
HostWindows::HostWindows(const UnitPlan& units, const StatePlan& plan, StateStore& store)
    : names_(units), plan_(plan), store_(store), lower_(Device::current().lower) {
  std::size_t bytes = 0;
  for (const auto& states : plan.units) {
    if (states.in_others_files) continue;
    const auto elements = std::min(plan.options.piece_elements, states.own.elements());
    if (states.params_place == Place::nvme && states.form.coded())
      bytes = std::max(bytes, whole_pages(states.form.code_bytes(elements) + states.form.bytes() -
                                          states.form.code_bytes(states.own.elements())));
    else if (states.params_place == Place::nvme)
      bytes = std::max(bytes, whole_pages(static_cast<std::size_t>(elements) * size_of(plan.options.dtype)));
    for (const auto& piece : states.pieces)
      if (piece.place == Place::nvme) bytes = std::max(bytes, whole_pages(piece.layout.bytes(piece.extent.elements())));
  }
  if (bytes > 0)
    for (auto& buffer : buffers_) buffer = lower_->host().allocate(bytes, Kind::working);
}

// Weights in files are moved in chunks of as many elements as a piece has.
Extent HostWindows::param_chunk(std::size_t u, const Extent& range) const {
  const Extent& own = plan_.units[u].own;
  const std::int64_t size = plan_.options.piece_elements;
  const std::int64_t begin = range.begin - (range.begin - own.begin) % size;
  return {begin, std::min(begin + size, own.end)};
}

// A copy of device memory on the host, by number.
View HostWindows::staged(std::size_t number, const View& device, Access access) {
  if (!device) return {};
  if (host_copies_.size() <= number) host_copies_.resize(number + 1);
  auto& copy = host_copies_[number];
  copy.resize(device.bytes());
  if (access == Access::read) {
    launch([&](auto& s) { copy_to_host(s, device.data, copy.data(), device.bytes()); });
    Device::current().compute.synchronize();
  }
  return {copy.data(), device.dtype, device.shape};
}

// A part of a block in files in one of the buffers. What was last read stays: small weights side by side are read once.
std::byte* HostWindows::buffered(std::size_t buffer, const Block& block, std::size_t offset, std::size_t bytes,
                                 Access access) {
  std::byte* const memory = buffers_[buffer].data();
  const Buffered wanted{&block, offset, bytes, store_.version()};
  if (access != Access::read) {
    clear(lower_->host_stream(), memory, whole_pages(bytes));
    buffered_[buffer] = {};
  } else if (buffered_[buffer] != wanted) {
    Completion done = lower_->read(block, offset, memory, bytes, {"weights"});
    done.wait();
    buffered_[buffer] = wanted;
  }
  return memory;
}

HostWindow HostWindows::open(std::size_t u, const Extent& range, Access access) {
  const UnitStates& states = plan_.units[u];
  StateStore::UnitMemory& unit = store_.unit(u);
  HostWindow window{.unit = u, .range = range, .param = {}, .states = {}};
  const std::int64_t n = range.elements();
  if (const auto i = states.piece_with(range)) {
    const PiecePlan& plan = states.pieces[*i];
    const StateStore::PieceMemory& piece = unit.pieces[*i];
    const std::size_t bytes = plan.layout.bytes(plan.extent.elements());
    std::byte* const memory =
        plan.place == Place::nvme ? buffered(kStateBuffer, piece.block, 0, bytes, access) : piece.state();
    if (plan.place == Place::host && access != Access::read) clear(lower_->host_stream(), memory, bytes);
    window.states = plan.layout.views(memory, plan.extent.elements()).part(range.begin - plan.extent.begin, n);
    if (plan.place == Place::device) {
      if (access != Access::state) window.states.moments.clear();
      std::size_t copy = kFirstMomentCopy;
      for (Moment& moment : window.states.moments) {
        moment.values = staged(copy++, moment.values, access);
        moment.exponents = staged(copy++, moment.exponents, access);
      }
      if (window.states.remainder) window.states.remainder = staged(kStateBuffer, window.states.remainder, access);
      // Both copies of the weights are alike: one window serves for both.
      window.states.param = {};
    }
    if (window.states.param && access == Access::read) {
      window.param = window.states.param;
      return window;
    }
  }
  const DType dtype = plan_.options.dtype;
  const std::size_t offset = plan_.param_offset(u, range);
  if (states.params_place == Place::device) {
    window.param = staged(kParamBuffer, unit.params.of(range).view(), access);
  } else if (states.params_place == Place::host) {
    window.param = {unit.params_block.data() + offset, dtype, {n}};
  } else {
    const Extent chunk = param_chunk(u, range);
    const std::size_t first = plan_.param_offset(u, chunk);
    std::byte* memory = buffered(kParamBuffer, unit.params_block, first,
                                 static_cast<std::size_t>(chunk.elements()) * size_of(dtype), access);
    window.param = {memory + (offset - first), dtype, {n}};
  }
  return window;
}

std::byte* HostWindows::open_stored(std::size_t u, std::size_t offset, std::size_t bytes) {
  if (plan_.units[u].params_place == Place::host) return store_.unit(u).params_block.data() + offset;
  if (plan_.units[u].params_place == Place::nvme) {
    clear(lower_->host_stream(), buffers_[kParamBuffer].data(), whole_pages(bytes));
    buffered_[kParamBuffer] = {};
    return buffers_[kParamBuffer].data();
  }
  if (host_copies_.size() <= kParamBuffer) host_copies_.resize(kParamBuffer + 1);
  host_copies_[kParamBuffer].resize(bytes);
  return host_copies_[kParamBuffer].data();
}

void HostWindows::close_stored(std::size_t u, std::size_t offset, std::size_t bytes) {
  store_.count_change();
  const Place place = plan_.units[u].params_place;
  StateStore::UnitMemory& unit = store_.unit(u);
  if (place == Place::nvme) {
    Completion done = lower_->write(buffers_[kParamBuffer].data(), unit.params_block, offset, bytes,
                                    names_.about("first weights", u));
    done.wait();
  } else if (place == Place::device) {
    const auto n = static_cast<std::int64_t>(bytes);
    to_device({host_copies_[kParamBuffer].data(), DType::u8, {n}},
              unit.coded.part(static_cast<std::int64_t>(offset), {n}).view());
  }
}

void HostWindows::close(const HostWindow& window) {
  store_.count_change();
  const UnitStates& states = plan_.units[window.unit];
  StateStore::UnitMemory& unit = store_.unit(window.unit);
  const std::int64_t n = window.range.elements();
  const auto write = [&](std::size_t buffer, const Block& block, std::size_t offset, std::size_t bytes) {
    Completion done =
        lower_->write(buffers_[buffer].data(), block, offset, bytes, names_.about("first weights", window.unit));
    done.wait();
  };
  if (const auto i = states.piece_with(window.range)) {
    const PiecePlan& plan = states.pieces[*i];
    StateStore::PieceMemory& piece = unit.pieces[*i];
    if (window.states.param) std::memcpy(window.states.param.data, window.param.data, window.param.bytes());
    if (plan.place == Place::device) {
      const StateViews device =
          plan.layout.views(piece.state(), plan.extent.elements()).part(window.range.begin - plan.extent.begin, n);
      if (device.remainder) to_device(window.states.remainder, device.remainder);
      for (std::size_t m = 0; m < window.states.moments.size(); ++m) {
        to_device(window.states.moments[m].values, device.moments[m].values);
        if (device.moments[m].exponents) to_device(window.states.moments[m].exponents, device.moments[m].exponents);
      }
      if (device.param) to_device(window.param, device.param);
    } else if (plan.place == Place::nvme) {
      write(kStateBuffer, piece.block, 0, plan.layout.bytes(plan.extent.elements()));
    }
  }
  if (states.params_place == Place::device)
    to_device(window.param, unit.params.of(window.range).view());
  else if (states.params_place == Place::nvme)
    write(kParamBuffer, unit.params_block, plan_.param_offset(window.unit, window.range), window.param.bytes());
}

}  // namespace zeepo
