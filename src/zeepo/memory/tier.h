// A place for bytes with a budget: device memory, host memory, files.
//
// A Block leases bytes in one tier and returns them when destroyed; it must not outlive the tier. Every byte is counted
// by what it is for. A tier belongs to one rank and is used from that rank's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace zeepo {

// What bytes are for. Gathered parameters and gradients not yet reduced are `working`, and so is every op's scratch.
enum class Kind : std::uint8_t { params, grads, optimizer, activations, working };
inline constexpr std::array kKinds{Kind::params, Kind::grads, Kind::optimizer, Kind::activations, Kind::working};
std::string_view name_of(Kind kind);

struct Usage {
  std::array<std::int64_t, kKinds.size()> bytes{};
  std::int64_t total = 0;
  std::int64_t operator[](Kind kind) const { return bytes[static_cast<std::size_t>(kind)]; }
};
// "params 1.20 MiB, grads 1.20 MiB": the kinds that are not zero.
std::string describe(const Usage& usage);

// Where bytes live, the fastest first.
enum class Place : std::uint8_t { device, host, nvme };
inline constexpr std::array kPlaces{Place::device, Place::host, Place::nvme};
std::string_view name_of(Place place);

class Tier;

class Block {
 public:
  Block() = default;
  Block(Tier& tier, std::byte* data, std::size_t offset, std::size_t bytes, Kind kind);
  ~Block();
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;

  bool defined() const { return tier_ != nullptr; }
  // Null in a tier that only counts (a dry pass), and in files.
  std::byte* data() const { return data_; }
  // From the start of the tier.
  std::size_t offset() const { return offset_; }
  std::size_t bytes() const { return bytes_; }
  Kind kind() const { return kind_; }
  bool in(const Tier& tier) const { return tier_ == &tier; }

 private:
  friend class Tier;
  Tier* tier_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t offset_ = 0, bytes_ = 0;
  Kind kind_ = Kind::working;
};

class Tier {
 public:
  explicit Tier(std::string name) : name_(std::move(name)) {}
  virtual ~Tier() = default;
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  const std::string& name() const { return name_; }
  // Throws Error with the request, the budget and what holds it when the tier is full.
  virtual Block allocate(std::size_t bytes, Kind kind) = 0;
  virtual std::size_t free_bytes() const = 0;

  const Usage& current() const { return current_; }
  const Usage& peak() const { return peak_; }  // each kind's own peak; total's is of their sum
  // From here on peak() tells of what comes next.
  void restart_peak() { peak_ = recent_peak_ = current_; }
  // The peak since the last call; peak() stays as it is.
  Usage take_recent_peak() { return std::exchange(recent_peak_, current_); }

 protected:
  friend class Block;
  virtual void release(std::size_t offset, std::size_t bytes) noexcept = 0;
  Block lease(std::byte* data, std::size_t offset, std::size_t bytes, Kind kind);

 private:
  void give_back(const Block& block) noexcept;

  std::string name_;
  Usage current_, peak_, recent_peak_;
};

}  // namespace zeepo
