// Random numbers as a function: the value at (key, counter), the same on every machine and for every order of asking.
//
// Philox4x32-10. A key names a stream (a parameter to initialise, a dropout call); the counter is the element's index,
// so that any rank or thread can draw just the elements it holds.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace zeepo {

struct RngKey {
  std::uint64_t value = 0;
};

// Independent streams from one seed: mix(seed, "name"), mix(key, step).
RngKey mix(RngKey key, std::uint64_t salt);
RngKey mix(RngKey key, std::string_view salt);

std::array<std::uint32_t, 4> philox(RngKey key, std::uint64_t counter);
// The i-th number of a stream. uniform is in [0, 1); normal has mean 0 and deviation 1.
float uniform(RngKey key, std::uint64_t i);
float normal(RngKey key, std::uint64_t i);
// Numbers [begin, begin + out.size()) of a stream: the same values, faster than one by one.
void fill_uniform(RngKey key, std::uint64_t begin, std::span<float> out);
void fill_normal(RngKey key, std::uint64_t begin, std::span<float> out);

}  // namespace zeepo
