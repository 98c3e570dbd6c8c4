#include "zeepo/model/rope_config.h"

#include <gtest/gtest.h>

#include <cmath>

namespace zeepo {
namespace {

// Within one unit in the last place: PyTorch's vectorized power is not always the nearest.
void expect_frequencies(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_GE(found[i], std::nextafter(expected[i], 0.0f)) << i;
    EXPECT_LE(found[i], std::nextafter(expected[i], INFINITY)) << i;
  }
}

TEST(InverseFrequencies, AreTheGeometricSeries) {
  expect_frequencies(inverse_frequencies({.theta = 10000.0}, 8), {1.0f, 0.1f, 0.01f, 0.001f});
}

TEST(InverseFrequencies, AreDividedByALinearFactor) {
  expect_frequencies(inverse_frequencies({.scaling = RopeConfig::Scaling::linear, .theta = 10000.0, .factor = 4}, 8),
                     {0.25f, 0.025f, 0.0025f, 0.00025f});
}

// As transformers computes them for Llama-3.2-1B.
TEST(InverseFrequencies, AreThoseOfLlama3) {
  const RopeConfig rope{.scaling = RopeConfig::Scaling::llama3,
                        .theta = 500000.0,
                        .factor = 32.0,
                        .low_freq_factor = 1.0,
                        .high_freq_factor = 4.0,
                        .original_max_positions = 8192};
  expect_frequencies(inverse_frequencies(rope, 64), {1.0f,
                                                     0.663601279f,
                                                     0.440366626f,
                                                     0.292227834f,
                                                     0.193922758f,
                                                     0.128687382f,
                                                     0.0853971019f,
                                                     0.0566696189f,
                                                     0.0376060307f,
                                                     0.0249554086f,
                                                     0.0165604409f,
                                                     0.0109895291f,
                                                     0.00729266508f,
                                                     0.00483942125f,
                                                     0.00321144611f,
                                                     0.00129054801f,
                                                     0.000429556705f,
                                                     9.70828623e-05f,
                                                     1.94616387e-05f,
                                                     1.29147675e-05f,
                                                     8.57025589e-06f,
                                                     5.68723226e-06f,
                                                     3.77405445e-06f,
                                                     2.50446715e-06f,
                                                     1.66196742e-06f,
                                                     1.10288363e-06f,
                                                     7.31874934e-07f,
                                                     4.85673127e-07f,
                                                     3.22293289e-07f,
                                                     2.1387423e-07f,
                                                     1.41927202e-07f,
                                                     9.41830649e-08f});
}

}  // namespace
}  // namespace zeepo
