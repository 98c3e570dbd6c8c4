#include "zeepo/memory/tier.h"

#include <algorithm>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"

namespace zeepo {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::params: return "params";
    case Kind::grads: return "grads";
    case Kind::optimizer: return "optimizer";
    case Kind::activations: return "activations";
    case Kind::working: return "working";
  }
  return "?";
}

std::string describe(const Usage& usage) {
  std::string text;
  for (const Kind kind : kKinds)
    if (usage[kind] > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(kind), format_size(usage[kind]));
  return text.empty() ? "nothing" : text;
}

std::string_view name_of(Place place) {
  switch (place) {
    case Place::device: return "device";
    case Place::host: return "host";
    case Place::nvme: return "nvme";
  }
  return "?";
}

Block::Block(Tier& tier, std::byte* data, std::size_t offset, std::size_t bytes, Kind kind)
    : tier_(&tier), data_(data), offset_(offset), bytes_(bytes), kind_(kind) {}

Block::~Block() {
  if (tier_) tier_->give_back(*this);
}

Block::Block(Block&& other) noexcept
    : tier_(std::exchange(other.tier_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      offset_(other.offset_),
      bytes_(std::exchange(other.bytes_, 0)),
      kind_(other.kind_) {}

Block& Block::operator=(Block&& other) noexcept {
  if (this != &other) {
    if (tier_) tier_->give_back(*this);
    tier_ = std::exchange(other.tier_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    offset_ = other.offset_;
    bytes_ = std::exchange(other.bytes_, 0);
    kind_ = other.kind_;
  }
  return *this;
}

Block Tier::lease(std::byte* data, std::size_t offset, std::size_t bytes, Kind kind) {
  const auto i = static_cast<std::size_t>(kind);
  current_.bytes[i] += static_cast<std::int64_t>(bytes);
  current_.total += static_cast<std::int64_t>(bytes);
  for (Usage* peak : {&peak_, &recent_peak_}) {
    peak->bytes[i] = std::max(peak->bytes[i], current_.bytes[i]);
    peak->total = std::max(peak->total, current_.total);
  }
  return Block(*this, data, offset, bytes, kind);
}

void Tier::give_back(const Block& block) noexcept {
  current_.bytes[static_cast<std::size_t>(block.kind_)] -= static_cast<std::int64_t>(block.bytes_);
  current_.total -= static_cast<std::int64_t>(block.bytes_);
  release(block.offset_, block.bytes_);
}

}  // namespace zeepo
