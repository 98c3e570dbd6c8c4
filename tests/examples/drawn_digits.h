// Digits drawn from a 5 × 7 font, moved, faded and strewn with noise: the same for the same seed. Written as IDX files.
#pragma once

#include <zlib.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "zeepo/base/error.h"
#include "zeepo/base/rng.h"

namespace mnist {

enum class Packing { plain, gzip };

inline constexpr int kSide = 28;

// A row of the font is five bits, the left pixel the highest.
inline constexpr std::array<std::array<std::uint8_t, 7>, 10> kFont{{
    {0b01110, 0b10001, 0b10011, 0b10101, 0b11001, 0b10001, 0b01110},
    {0b00100, 0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110},
    {0b01110, 0b10001, 0b00001, 0b00110, 0b01000, 0b10000, 0b11111},
    {0b11111, 0b00010, 0b00100, 0b00010, 0b00001, 0b10001, 0b01110},
    {0b00010, 0b00110, 0b01010, 0b10010, 0b11111, 0b00010, 0b00010},
    {0b11111, 0b10000, 0b11110, 0b00001, 0b00001, 0b10001, 0b01110},
    {0b00110, 0b01000, 0b10000, 0b11110, 0b10001, 0b10001, 0b01110},
    {0b11111, 0b00001, 0b00010, 0b00100, 0b01000, 0b01000, 0b01000},
    {0b01110, 0b10001, 0b10001, 0b01110, 0b10001, 0b10001, 0b01110},
    {0b01110, 0b10001, 0b10001, 0b01111, 0b00001, 0b00010, 0b01100},
}};

// kSide × kSide bytes.
inline std::string draw(int digit, zeepo::RngKey key) {
  const auto below = [&](std::uint64_t i, int n) {
    return static_cast<int>(zeepo::uniform(key, i) * static_cast<float>(n));
  };
  constexpr int kScale = 3;
  const int left = below(0, kSide - 5 * kScale + 1), top = below(1, kSide - 7 * kScale + 1), ink = 128 + below(2, 128);
  std::string pixels(kSide * kSide, '\0');
  for (int y = 0; y < kSide; ++y)
    for (int x = 0; x < kSide; ++x) {
      const int column = x - left, row = y - top, pixel = y * kSide + x;
      const bool inside = column >= 0 && column < 5 * kScale && row >= 0 && row < 7 * kScale;
      const auto& glyph = kFont[static_cast<std::size_t>(digit)];
      const bool on = inside && (glyph[static_cast<std::size_t>(row / kScale)] >> (4 - column / kScale) & 1) != 0;
      const int noise = below(3 + static_cast<std::uint64_t>(pixel), 64);
      pixels[static_cast<std::size_t>(pixel)] = static_cast<char>(on ? ink - noise : noise);
    }
  return pixels;
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes, Packing packing) {
  if (packing == Packing::plain) {
    if (!(std::ofstream(path, std::ios::binary) << bytes)) throw zeepo::Error("cannot write {}", path.string());
    return;
  }
  const gzFile file = gzopen((path.string() + ".gz").c_str(), "wb");
  const bool written = file && gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) > 0;
  if (gzclose(file) != Z_OK || !written) throw zeepo::Error("cannot write {}.gz", path.string());
}

// NAME-images-idx3-ubyte and NAME-labels-idx1-ubyte in `directory`, with .gz if packed.
inline void write_digits(const std::filesystem::path& directory, const std::string& name, int count, std::uint64_t seed,
                         Packing packing) {
  const auto number = [](int n) {
    std::string bytes;
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(n >> shift & 255);
    return bytes;
  };
  std::string images = number(0x00000803) + number(count) + number(kSide) + number(kSide);
  std::string labels = number(0x00000801) + number(count);
  for (int i = 0; i < count; ++i) {
    images += draw(i % 10, mix(zeepo::RngKey{seed}, static_cast<std::uint64_t>(i)));
    labels += static_cast<char>(i % 10);
  }
  write_file(directory / (name + "-images-idx3-ubyte"), images, packing);
  write_file(directory / (name + "-labels-idx1-ubyte"), labels, packing);
}

}  // namespace mnist
