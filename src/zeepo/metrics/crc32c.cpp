#include "zeepo/metrics/crc32c.h"

#include <array>

namespace zeepo {
namespace {

constexpr std::array<std::uint32_t, 256> kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t rest = i;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? 0x82f63b78u : 0u);  // the reversed polynomial
    table[i] = rest;
  }
  return table;
}();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t rest = ~0u;
  for (const char byte : bytes) rest = rest >> 8 ^ kTable[(rest ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~rest;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t plain = crc32c(bytes);
  return (plain >> 15 | plain << 17) + 0xa282ead8u;
}

}  // namespace zeepo
