#include "zeepo/comm/wire_codec.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "zeepo/base/error.h"
#include "zeepo/comm/float_types.h"

namespace zeepo {
namespace {

constexpr std::uint32_t kMagic = 0x3157705a;  // "ZpW1"
constexpr std::int64_t kHalf = kWireBlock / 2;
constexpr std::int64_t kBlocksAtOnce = 512;  // a task of the pool
constexpr std::uint16_t kNanScale = 0x7fc0;

// Sent between ranks as it stands.
struct Header {
  std::uint32_t magic, type;
  std::int64_t id, elements;
  std::uint64_t checksum;  // of what follows
};

std::int64_t blocks_of(std::int64_t elements) { return (elements + kWireBlock - 1) / kWireBlock; }
std::size_t code_bytes(WireType type) {
  return static_cast<std::size_t>(kWireBlock) * static_cast<std::size_t>(format_of(type).code_bits) / 8;
}
std::size_t body_bytes(WireType type, std::int64_t elements) {
  return static_cast<std::size_t>(blocks_of(elements)) * (sizeof(std::uint16_t) + code_bytes(type));
}
std::uint16_t* scales_in(std::byte* message) { return reinterpret_cast<std::uint16_t*>(message + sizeof(Header)); }
std::uint8_t* codes_in(std::byte* message, std::int64_t elements) {
  return reinterpret_cast<std::uint8_t*>(message + sizeof(Header)) +
         static_cast<std::size_t>(blocks_of(elements)) * sizeof(std::uint16_t);
}
std::uint64_t checksum_of(WireType type, std::int64_t elements, const std::byte* message) {
  return XXH3_64bits(message + sizeof(Header), body_bytes(type, elements));
}

// The bf16 at or above x, which is finite and not negative.
std::uint16_t rounded_up(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0xffffu) >> 16);
}

template <class T>
void load_values(const T* from, std::int64_t n, float* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = to_float(from[i]);
}
template <class T>
void store_values(const float* from, std::int64_t n, T* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = from_float<T>(from[i]);
}

// To the nearest whole number, ties to even: for less than 2^22.
float rounded(float x) {
  constexpr float kShift = 12582912.0f;
  return (x + kShift) - kShift;
}

}  // namespace

std::size_t message_bytes(WireType type, DType dtype, std::int64_t elements) {
  if (type == WireType::same) return static_cast<std::size_t>(elements) * size_of(dtype);
  return sizeof(Header) + (body_bytes(type, elements) + 7) / 8 * 8;
}

void load_block(ConstView values, std::int64_t at, float* block) {
  const std::int64_t n = std::min(kWireBlock, values.elements() - at);
  with_float_type(values.dtype, "a message", [&]<class T>(T) { load_values(values.as<T>() + at, n, block); });
  std::fill(block + n, block + kWireBlock, 0.0f);
}

void store_block(const float* block, View values, std::int64_t at) {
  const std::int64_t n = std::min(kWireBlock, values.elements() - at);
  with_float_type(values.dtype, "a message", [&]<class T>(T) { store_values(block, n, values.as<T>() + at); });
}

std::uint16_t encode_block(WireType type, const float* values, std::uint8_t* codes) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < kWireBlock; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu);
  const auto levels = static_cast<float>((1 << (format_of(type).code_bits - 1)) - 1);  // 127 or 7
  const bool finite = largest < 0x7f800000u;
  const std::uint16_t scale = finite ? rounded_up(std::bit_cast<float>(largest) / levels) : kNanScale;
  if (!finite || scale == 0) {
    std::memset(codes, 0, code_bytes(type));
    return scale;
  }
  const float unit = to_float(bf16{scale});
  std::int32_t whole[kWireBlock];
  for (std::int64_t i = 0; i < kWireBlock; ++i) whole[i] = static_cast<std::int32_t>(rounded(values[i] / unit));
  if (type == WireType::int8) {
    for (std::int64_t i = 0; i < kWireBlock; ++i) codes[i] = static_cast<std::uint8_t>(whole[i]);
  } else {  // a byte holds a value of each half
    for (std::int64_t i = 0; i < kHalf; ++i)
      codes[i] = static_cast<std::uint8_t>((whole[i] & 15) | (whole[i + kHalf] << 4));
  }
  return scale;
}

void decode_block(WireType type, std::uint16_t scale, const std::uint8_t* codes, float* values) {
  const float unit = to_float(bf16{scale});
  if (type == WireType::int8) {
    for (std::int64_t i = 0; i < kWireBlock; ++i)
      values[i] = static_cast<float>(static_cast<std::int8_t>(codes[i])) * unit;
    return;
  }
  for (std::int64_t i = 0; i < kHalf; ++i) {
    const auto code = static_cast<std::int32_t>(codes[i]);
    values[i] = static_cast<float>(((code & 15) ^ 8) - 8) * unit;
    values[i + kHalf] = static_cast<float>(((code >> 4) ^ 8) - 8) * unit;
  }
}

void encode(CpuStream& stream, WireType type, ConstView values, std::int64_t id, std::byte* message, View error) {
  const std::int64_t n = values.elements();
  WireWriter writer(type, n, id, message);
  stream.pool().for_range(blocks_of(n), kBlocksAtOnce, [&](std::int64_t begin, std::int64_t end) {
    float block[kWireBlock], lost[kWireBlock];
    for (std::int64_t b = begin; b < end; ++b) {
      load_block(values, b * kWireBlock, block);
      if (error) {
        load_block(error, b * kWireBlock, lost);
        for (std::int64_t i = 0; i < kWireBlock; ++i) block[i] += lost[i];
      }
      writer.write_block(b, block);
      if (!error) continue;
      const std::size_t at = static_cast<std::size_t>(b);
      decode_block(type, scales_in(message)[at], codes_in(message, n) + at * code_bytes(type), lost);
      for (std::int64_t i = 0; i < kWireBlock; ++i) {
        const float difference = block[i] - lost[i];
        lost[i] = std::isfinite(difference) ? difference : 0.0f;  // a step that is skipped leaves nothing behind
      }
      store_block(lost, error, b * kWireBlock);
    }
  });
  writer.finish();
}

WireWriter::WireWriter(WireType type, std::int64_t elements, std::int64_t id, std::byte* message)
    : type_(type), elements_(elements), id_(id), message_(message) {}

void WireWriter::write_block(std::int64_t block, const float* values) {
  const auto b = static_cast<std::size_t>(block);
  scales_in(message_)[b] = encode_block(type_, values, codes_in(message_, elements_) + b * code_bytes(type_));
}

void WireWriter::finish() {
  const Header header{kMagic, static_cast<std::uint32_t>(type_), id_, elements_,
                      checksum_of(type_, elements_, message_)};
  std::memcpy(message_, &header, sizeof header);
  const std::size_t used = sizeof header + body_bytes(type_, elements_);
  std::memset(message_ + used, 0, message_bytes(type_, DType::f32, elements_) - used);
}

WireMessage::WireMessage(WireType type, std::int64_t elements, const std::byte* message, int from, const Label& label)
    : type_(type),
      elements_(elements),
      scales_(scales_in(const_cast<std::byte*>(message))),
      codes_(codes_in(const_cast<std::byte*>(message), elements)) {
  Header header;
  std::memcpy(&header, message, sizeof header);
  const auto refuse = [&](const std::string& fault) {
    throw Error("the message of rank {} for \"{}\" (id {}): {}; look for broken memory or network, and run again", from,
                label.what, label.id, fault);
  };
  if (header.magic != kMagic) refuse("is damaged: it does not begin as a message of zeepo's");
  if (header.type != static_cast<std::uint32_t>(type) || header.elements != elements || header.id != label.id)
    refuse(fmt::format("is another: {} values of {} for id {}, where {} of {} were to come", header.elements,
                       header.type < kWireFormats.size() ? kWireFormats[header.type].name : "an unknown type",
                       header.id, elements, name_of(type)));
  if (header.checksum != checksum_of(type, elements, message)) refuse("is damaged: its checksum is wrong");
}

void WireMessage::read_block(std::int64_t block, float* values) const {
  const auto b = static_cast<std::size_t>(block);
  decode_block(type_, scales_[b], codes_ + b * code_bytes(type_), values);
}

void WireMessage::decode(CpuStream& stream, View values) const {
  stream.pool().for_range(blocks_of(elements_), kBlocksAtOnce, [&](std::int64_t begin, std::int64_t end) {
    float block[kWireBlock];
    for (std::int64_t b = begin; b < end; ++b) {
      read_block(b, block);
      store_block(block, values, b * kWireBlock);
    }
  });
}

}  // namespace zeepo
