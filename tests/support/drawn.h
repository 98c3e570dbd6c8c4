// For tests that draw a sample anew in every run; ZEEPO_TEST_SEED repeats one.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace zeepo {

class Drawn : public testing::Test {
 protected:
  Drawn() {
    const char* given = std::getenv("ZEEPO_TEST_SEED");
    const auto seed = given ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10)) : std::random_device()();
    random_.seed(seed);
    RecordProperty("seed", static_cast<int>(seed));
    std::printf("ZEEPO_TEST_SEED=%u\n", seed);
  }
  template <class T>
  T one_of(std::vector<T> choices) {
    return choices[random_() % choices.size()];
  }

  std::mt19937 random_;
};

}  // namespace zeepo
