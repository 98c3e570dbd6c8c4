#include "zeepo/zero/state_snapshot.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/first_failure.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

constexpr std::size_t kWriters = 2;  // threads that hand copies to the sink

std::vector<SnapshotPart::Slice> slices_in(const std::vector<WeightPlaces::UnitSlice>& unit, const Extent& range) {
  std::vector<SnapshotPart::Slice> slices;
  for (const auto& [slice, place] : unit) {
    const Extent part = common({place.place.offset, place.place.offset + place.elements}, range);
    if (part.empty()) continue;
    slices.push_back({slice.name, slice.shape, place.begin + part.begin - place.place.offset, part.elements(),
                      part.begin - range.begin});
  }
  return slices;
}

std::size_t param_bytes(const StatePlan& plan, const SnapshotPart& part) {
  return static_cast<std::size_t>(part.range.elements()) * size_of(plan.options.dtype);
}

}  // namespace

std::vector<SnapshotPart> snapshot_parts(const UnitPlan& units, const StatePlan& plan) {
  const WeightPlaces places(units);
  const std::int64_t size = plan.options.piece_elements;
  std::vector<SnapshotPart> parts;
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    const Extent& own = plan.units[u].own;
    in_parts(own, own.begin, size, [&](const Extent& range) {
      SnapshotPart part{u, range, plan.units[u].piece_with(range), slices_in(places.in_unit(u), range)};
      if (!part.slices.empty()) parts.push_back(std::move(part));
    });
  }
  return parts;
}

StateSnapshot::StateSnapshot(const UnitPlan& units, const StatePlan& plan, StateStore& store)
    : names_(units), plan_(plan), store_(store), lower_(Device::current().lower) {
  if (plan.options.snapshot_bytes == 0) return;
  parts_ = snapshot_parts(units, plan);
  for (const UnitStates& unit : plan.units) {
    parts_of_.emplace_back(unit.pieces.size());
    pieces_.emplace_back(unit.pieces.size());
  }
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (parts_[i].piece) parts_of_[parts_[i].unit][*parts_[i].piece].push_back(i);
  copies_.resize(parts_.size());
  started_.assign(parts_.size(), true);
  make_buffers(plan.options.snapshot_bytes);
}

// States in files are read in whole pages, a piece at a time; elsewhere only the part is copied.
std::size_t StateSnapshot::bytes_of(const SnapshotPart& part) const {
  const UnitStates& unit = plan_.units[part.unit];
  std::size_t bytes = whole_pages(param_bytes(plan_, part));
  if (!part.piece) return bytes;
  const PiecePlan& piece = unit.pieces[*part.piece];
  const std::int64_t elements = piece.place == Place::nvme ? piece.extent.elements() : part.range.elements();
  if (piece.layout.holds_param) bytes = 0;
  return bytes + whole_pages(piece.layout.bytes(elements));
}

void StateSnapshot::make_buffers(std::int64_t most_bytes) {
  std::size_t bytes = 0;
  for (const SnapshotPart& part : parts_) bytes = std::max(bytes, bytes_of(part));
  if (bytes == 0) return;
  const auto count = std::clamp<std::size_t>(static_cast<std::size_t>(most_bytes) / bytes, 1, parts_.size());
  buffers_.resize(count);
  for (Buffer& buffer : buffers_) buffer.memory = lower_->host().allocate(bytes, Kind::working);
}

void StateSnapshot::begin(Sink sink) {
  if (!finished()) throw Error("snapshot: begun while another is under way");
  if (writers_.empty())
    for (std::size_t i = 0; i < kWriters; ++i) writers_.push_back(std::make_unique<Worker>());
  sink_ = std::move(sink);
  for (auto& unit : pieces_)
    for (PieceState& piece : unit) piece.copy = piece.due ? Copy::after_step : Copy::now;
  started_.assign(parts_.size(), false);
  left_ = parts_.size();
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (!parts_[i].piece || pieces_[parts_[i].unit][*parts_[i].piece].copy == Copy::now) queue_.push_back(i);
  if (plan_.steps_in_backward()) std::ranges::reverse(queue_);  // the next step begins with the last unit
  advance();
}

void StateSnapshot::announce_step(const PieceId& id) {
  if (!pieces_.empty()) pieces_[id.unit][id.piece].due = true;
}

void StateSnapshot::after_step(const PieceId& id) {
  if (pieces_.empty()) return;
  PieceState& piece = pieces_[id.unit][id.piece];
  piece.due = false;
  if (piece.copy != Copy::after_step) return;
  piece.copy = Copy::now;
  for (const std::size_t part : parts_of_[id.unit][id.piece]) queue_.push_back(part);
  advance();
}

void StateSnapshot::before_step(const PieceId& id) {
  if (pieces_.empty() || pieces_[id.unit][id.piece].copy != Copy::now) return;
  const auto start = std::chrono::steady_clock::now();
  for (const std::size_t part : parts_of_[id.unit][id.piece])
    if (!started_[part]) copy(part);
  for (const std::size_t part : parts_of_[id.unit][id.piece])
    for (Completion& completion : copies_[part]) completion.wait();
  pieces_[id.unit][id.piece].copy = Copy::never;
  stalled_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void StateSnapshot::advance() {
  while (!queue_.empty() && buffers_[next_].free.done()) {
    if (!started_[queue_.front()]) copy(queue_.front());
    queue_.pop_front();
  }
}

bool StateSnapshot::finished() const {
  return left_ == 0 && std::ranges::all_of(buffers_, [](const Buffer& buffer) { return buffer.free.done(); });
}

void StateSnapshot::finish() {
  for (; !queue_.empty(); queue_.pop_front())
    if (!started_[queue_.front()]) copy(queue_.front());
  if (left_ > 0) throw Error("snapshot: {} parts wait for a step that has not been taken; settle first", left_);
  for (Buffer& buffer : buffers_) buffer.free.wait();
}

void StateSnapshot::cancel() noexcept {
  queue_.clear();
  left_ = 0;
  for (auto& unit : pieces_)
    for (PieceState& piece : unit) piece.copy = Copy::never;
  FirstFailure told;  // by who waited for what failed
  for (Buffer& buffer : buffers_) told.outlast([&] { buffer.free.wait(); });
}

// Begins the copies of a part's optimizer state; files are read a whole piece at a time.
StateViews StateSnapshot::copy_states(const SnapshotPart& part, Copies& copies) {
  const PiecePlan& plan = plan_.units[part.unit].pieces[*part.piece];
  const StateStore::PieceMemory& piece = store_.unit(part.unit).pieces[*part.piece];
  const std::int64_t n = part.range.elements(), first = part.range.begin - plan.extent.begin,
                     all = plan.extent.elements();
  if (plan.place == Place::nvme) {
    const std::size_t bytes = plan.layout.bytes(all);
    std::byte* const to = copies.take(bytes);
    copies.started.push_back(lower_->read(piece.block, 0, to, bytes, copies.about, copies.after));
    return plan.layout.views(to, all).part(first, n);
  }
  const StateViews from = plan.layout.views(piece.state(), all).part(first, n);
  StateViews states = plan.layout.views(copies.take(plan.layout.bytes(n)), n);
  const auto array = [&](const View& source, const View& into) {
    if (source) copy_array(plan.place, source, static_cast<std::byte*>(into.data), copies);
  };
  for (std::size_t i = 0; i < from.moments.size(); ++i) {
    array(from.moments[i].values, states.moments[i].values);
    array(from.moments[i].exponents, states.moments[i].exponents);
  }
  array(from.remainder, states.remainder);
  array(from.param, states.param);
  return states;
}

View StateSnapshot::copy_params(const SnapshotPart& part, Copies& copies) {
  const StateStore::UnitMemory& memory = store_.unit(part.unit);
  const Place place = plan_.units[part.unit].params_place;
  const std::size_t offset = plan_.param_offset(part.unit, part.range), bytes = param_bytes(plan_, part);
  std::byte* const to = copies.take(bytes);
  const View param{to, plan_.options.dtype, {part.range.elements()}};
  if (place == Place::nvme)
    copies.started.push_back(lower_->read(memory.params_block, offset, to, bytes, copies.about, copies.after));
  else if (place == Place::host)
    copy_array(place, {memory.params_block.data() + offset, param.dtype, param.shape}, to, copies);
  else
    copy_array(place, memory.params.of(part.range).view(), to, copies);
  return param;
}

void StateSnapshot::copy_array(Place from, const View& source, std::byte* to, Copies& copies) {
  if (from == Place::device)
    copies.started.push_back(lower_->download_snapshot(source.data, to, source.bytes(), copies.about, copies.after));
  else
    copies.started.push_back(copier_.run([source, to, after = std::vector(copies.after)]() mutable {
      for (Completion& completion : after) completion.wait();
      std::memcpy(to, source.data, source.bytes());
    }));
}

// Waits for a free buffer.
void StateSnapshot::copy(std::size_t index) {
  Buffer& buffer = buffers_[next_];
  buffer.free.wait();
  next_ = (next_ + 1) % buffers_.size();
  started_[index] = true;
  --left_;
  const SnapshotPart& part = parts_[index];
  const StateStore::UnitMemory& memory = store_.unit(part.unit);
  Copies copies{buffer.memory.data(), names_.about("snapshot", part.unit), memory.params_written, {}};
  StateViews states;
  if (part.piece) {
    copies.after.push_back(memory.pieces[*part.piece].written);
    states = copy_states(part, copies);
  }
  const View param = states.param ? states.param : copy_params(part, copies);
  copies_[index] = copies.started;
  buffer.free = writers_[index % writers_.size()]->run(
      [this, index, states, param, started = std::move(copies.started)]() mutable {
        for (Completion& completion : started) completion.wait();
        sink_(index, states, param);
      });
}

}  // namespace zeepo
