// The one format of compressed messages between ranks: blocks of int8 or int4 codes with a scale each.
//
// A message is a header, the scales in bf16, then the codes. A value of a block is its code times the block's scale,
// which is the largest magnitude of the block over 127 or 7, rounded up to bf16. A block that holds an infinity or a
// NaN comes back as NaN, so that who looks for these finds them. Blocks do not depend on each other: a message has the
// same bits on any number of threads, and what is cut at whole blocks the same values as the whole. The header says
// what the message is, and has a checksum of the rest.
#pragma once

#include <cstdint>

#include "zeepo/comm/communicator.h"
#include "zeepo/comm/wire_type.h"

namespace zeepo {

inline constexpr std::int64_t kWireBlock = 128;  // values that share a scale

// Of a message with these many values of `dtype`. WireType::same has no header.
std::size_t message_bytes(WireType type, DType dtype, std::int64_t elements);

// Writes the message of `values`, of a float dtype. Into `error`, where there is one, of as many values: what was in it
// is added to the values before, and what the codes lose of the sum is left there. Not for WireType::same.
void encode(CpuStream& stream, WireType type, ConstView values, std::int64_t id, std::byte* message, View error = {});

// A message that came from a rank.
class WireMessage {
 public:
  // Throws Error, which names the rank and the label, unless the message is whole and what was asked for.
  WireMessage(WireType type, std::int64_t elements, const std::byte* message, int from, const Label& label);

  // Values [kWireBlock * block, ...) of the message, always kWireBlock of them: zeros after the last.
  void read_block(std::int64_t block, float* values) const;
  void decode(CpuStream& stream, View values) const;

 private:
  WireType type_;
  std::int64_t elements_;
  const std::uint16_t* scales_;
  const std::uint8_t* codes_;
};

// A block of any float dtype as kWireBlock fp32 values, from element `at` on: zeros after the view's last.
void load_block(ConstView values, std::int64_t at, float* block);
// The first of the block's values to where they belong in the view.
void store_block(const float* block, View values, std::int64_t at);
// How a block becomes codes: for who has no view of it. `codes` are those of one block of a message.
std::uint16_t encode_block(WireType type, const float* values, std::uint8_t* codes);
void decode_block(WireType type, std::uint16_t scale, const std::uint8_t* codes, float* values);

// A message written block by block; finish() makes it whole.
class WireWriter {
 public:
  WireWriter(WireType type, std::int64_t elements, std::int64_t id, std::byte* message);
  void write_block(std::int64_t block, const float* values);
  void finish();

 private:
  WireType type_;
  std::int64_t elements_, id_;
  std::byte* message_;
};

}  // namespace zeepo
