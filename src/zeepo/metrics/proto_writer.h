// Protocol buffers' wire format, as much of it as TensorBoard's events need: a message is built field by field.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace zeepo {

// The `bytes` lowest bytes, the lowest first.
inline void append_little_endian(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> 8 * i & 0xff));
}

class ProtoWriter {
 public:
  void whole(int field, std::int64_t value) {
    key(field, 0);
    varint(static_cast<std::uint64_t>(value));
  }
  void number(int field, double value) {
    key(field, 1);
    append_little_endian(bytes_, std::bit_cast<std::uint64_t>(value), 8);
  }
  void number(int field, float value) {
    key(field, 5);
    append_little_endian(bytes_, std::bit_cast<std::uint32_t>(value), 4);
  }
  // Text, or a message in its bytes.
  void bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, int wire_type) { varint(static_cast<std::uint64_t>(field << 3 | wire_type)); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

}  // namespace zeepo
