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

float uniform(RngKey key, std::uint64_t i) { return unit_interval(philox(key, i / 4)[i % 4]); }

float normal(RngKey key, std::uint64_t i) {
  const auto bits = philox(key, i / 2);
  const float u = 1.0f - unit_interval(bits[0]);  // in (0, 1]
  const float angle = 2.0f * std::numbers::pi_v<float> * unit_interval(bits[1]);
  const float radius = std::sqrt(-2.0f * std::log(u));
  return radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace zeepo
