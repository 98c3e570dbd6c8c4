// CRC-32C (Castagnoli), and the masked form in which TFRecord files keep it.
#pragma once

#include <cstdint>
#include <string_view>

namespace zeepo {

std::uint32_t crc32c(std::string_view bytes);
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace zeepo
