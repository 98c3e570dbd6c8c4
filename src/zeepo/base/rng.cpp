#include "zeepo/base/rng.h"

#include <cmath>
#include <numbers>

namespace zeepo {
namespace {

std::uint64_t scramble(std::uint64_t x) {  // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

float unit_interval(std::uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// Numbers 4·block to 4·block + 3 of a stream.
std::array<float, 4> uniform_block(RngKey key, std::uint64_t block) {
  const auto bits = philox(key, block);
  return {unit_interval(bits[0]), unit_interval(bits[1]), unit_interval(bits[2]), unit_interval(bits[3])};
}

std::array<float, 4> normal_block(RngKey key, std::uint64_t block) {  // Box and Muller's pairs
  const auto u = uniform_block(key, block);
  std::array<float, 4> result;
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    const float radius = std::sqrt(-2.0f * std::log(1.0f - u[pair]));
    const float angle = 2.0f * std::numbers::pi_v<float> * u[pair + 1];
    result[pair] = radius * std::cos(angle);
    result[pair + 1] = radius * std::sin(angle);
  }
  return result;
}

template <class Block>
void fill(RngKey key, std::uint64_t begin, std::span<float> out, Block block) {
  for (std::size_t done = 0; done < out.size();) {
    const std::uint64_t i = begin + done;
    const auto values = block(key, i / 4);
    for (std::size_t lane = i % 4; lane < 4 && done < out.size(); ++lane) out[done++] = values[lane];
  }
}

}  // namespace

RngKey mix(RngKey key, std::uint64_t salt) { return {scramble(key.value ^ scramble(salt))}; }

RngKey mix(RngKey key, std::string_view salt) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : salt) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mix(key, hash);
}

std::array<std::uint32_t, 4> philox(RngKey key, std::uint64_t counter) {
  std::array<std::uint32_t, 4> c{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0};
  auto k0 = static_cast<std::uint32_t>(key.value);
  auto k1 = static_cast<std::uint32_t>(key.value >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

float uniform(RngKey key, std::uint64_t i) { return uniform_block(key, i / 4)[i % 4]; }

float normal(RngKey key, std::uint64_t i) { return normal_block(key, i / 4)[i % 4]; }

void fill_uniform(RngKey key, std::uint64_t begin, std::span<float> out) { fill(key, begin, out, uniform_block); }

void fill_normal(RngKey key, std::uint64_t begin, std::span<float> out) { fill(key, begin, out, normal_block); }

}  // namespace zeepo
