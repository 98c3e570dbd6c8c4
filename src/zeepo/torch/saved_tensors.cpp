#include "zeepo/torch/saved_tensors.h"

#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/first_failure.h"

namespace zeepo {
namespace {

constexpr About kAbout{"activations"};

}  // namespace

SavedTensors::~SavedTensors() {
  while (!saved_.empty()) drop(saved_.begin()->first);
}

SavedTensors::Saved& SavedTensors::at(std::int64_t number) {
  const auto found = saved_.find(number);
  if (found == saved_.end()) throw Error("activations: tensor {} is not kept any more", number);
  return found->second;
}

std::int64_t SavedTensors::keep(const std::byte* data, std::size_t bytes) {
  Saved saved{.block = tiers_.at(place_).allocate(bytes, Kind::activations), .leaving = {}, .coming = {}};
  saved.leaving = tiers_.from_device(data, saved.block, 0, bytes, kAbout);
  saved_.emplace(next_, std::move(saved));
  return next_++;
}

void SavedTensors::wait_until_left(std::int64_t number) { tiers_.wait(at(number).leaving, place_); }

void SavedTensors::start_bringing(std::int64_t number, std::byte* to) {
  Saved& saved = at(number);
  saved.coming = tiers_.to_device(saved.block, 0, to, saved.block.bytes(), kAbout, {saved.leaving});
}

void SavedTensors::wait_until_here(std::int64_t number) { tiers_.wait(at(number).coming, place_); }

void SavedTensors::drop(std::int64_t number) noexcept {
  const auto found = saved_.find(number);
  if (found == saved_.end()) return;
  Saved saved = std::move(found->second);
  saved_.erase(found);
  FirstFailure told;  // whoever needed the tensor has been told, or is told by every later transfer
  told.outlast([&] { saved.leaving.wait(); });
  told.outlast([&] { saved.coming.wait(); });
}

}  // namespace zeepo
