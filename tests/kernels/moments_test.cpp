// Narrow moments against plain scalar code, and what their rounding does on average.
#include "zeepo/kernels/moments.h"

#include <bit>

#include "tests/kernels/each_target.h"
#include "tests/kernels/kernel_checks.h"
#include "zeepo/kernels/optimizer.h"

namespace zeepo {
namespace {

constexpr std::int64_t kMomentSizes[] = {1, 15, 127, 128, 129, 1000, 70'001};
constexpr Chance kChance{{0x1234567890abcdefu}, 384};

// The rules of kernels/moments.h, one number at a time and in doubles.
std::uint32_t chance_of(std::int64_t i) {
  const std::int64_t at = kChance.first + i;
  return chance_bits(block_key(kChance.key, at / kMomentBlock), static_cast<std::uint32_t>(at % kMomentBlock));
}

std::uint16_t bf16_of(float x, std::uint32_t bits) {
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(x) + bits) >> 16);
}

struct SmallFloat {
  int span;
  bool sign;

  double magnitude(int code, int exponent) const {
    const int e = code >> 3, f = code & 7;
    const double unit = std::ldexp(1.0, exponent - 127 - span);
    return e == 0 ? unit * f / 8 : std::ldexp(unit * (1 + f / 8.0), e - 1);
  }
  double value(std::uint8_t code, int exponent) const {
    const double size = magnitude(sign ? code & 0x7f : code, std::max(exponent, 32));
    return sign && code & 0x80 ? -size : size;
  }
  // Between two codes, up with the chance of a 16-bit number below the share of the way.
  std::uint8_t code(double x, int exponent, std::uint32_t bits) const {
    const int most = sign ? 0x7f : 0xff;
    exponent = std::max(exponent, 32);
    int low = 0;
    while (low < most && magnitude(low + 1, exponent) <= std::abs(x)) ++low;
    if (low < most) {
      const double below = magnitude(low, exponent), above = magnitude(low + 1, exponent);
      // What the kernel adds are 20 bits, the lower 4 of them zero, to 20 bits of the way, rounded down.
      const double way = std::floor((std::abs(x) - below) / (above - below) * 0x1p20);
      if (way + 16.0 * bits >= 0x1p20) ++low;
    }
    if (!sign && x > 0) low = std::max(low, 1);
    return static_cast<std::uint8_t>(low | (sign && std::signbit(x) ? 0x80 : 0));
  }
  // The least exponent whose largest magnitude is not below x.
  int exponent(double largest) const {
    if (largest == 0) return 0;
    int e = std::ilogb(largest) + 127;
    if (largest > std::ldexp(1.875, e - 127)) ++e;
    return std::max(e, 0);
  }
};
constexpr SmallFloat kFirst{14, true}, kSecond{30, false};

void scalar_step(float g, float& p, float& m, float& v, const AdamOptions& o) {
  const auto rest1 = static_cast<float>(1.0 - double{o.beta1}), rest2 = static_cast<float>(1.0 - double{o.beta2});
  const auto step = static_cast<float>(double{o.lr} / double{o.correction1});
  const auto root = static_cast<float>(1.0 / std::sqrt(double{o.correction2}));
  const auto decay = static_cast<float>(double{o.lr} * double{o.weight_decay});
  m = std::fma(o.beta1, m, rest1 * g);
  v = std::fma(o.beta2, v, (rest2 * g) * g);
  p = std::fma(-decay, p, p);
  p = std::fma(-step, m / std::fma(std::sqrt(v), root, o.eps), p);
}

AdamOptions adam_options(int t) {
  return {.lr = 1e-2f,
          .beta1 = 0.9f,
          .beta2 = 0.95f,
          .eps = 1e-8f,
          .weight_decay = 0.1f,
          .correction1 = static_cast<float>(1 - std::pow(0.9, t)),
          .correction2 = static_cast<float>(1 - std::pow(0.95, t)),
          .decoupled = true};
}

TypedValues control() {
  TypedValues values(DType::f32, {3});
  *values.view().as<StepControl>() = {.norm = 1, .grad_factor = 1, .skip = 0};
  return values;
}

// Of very different sizes, some of them zero.
TypedValues gradients(std::int64_t n, std::uint64_t seed) {
  auto values = TypedValues::random(DType::f32, {n}, seed);
  for (std::int64_t i = 0; i < n; ++i)
    values.set(i, i % 7 == 3 ? 0.0f : std::ldexp(static_cast<float>(values[i]), -static_cast<int>(i * i % 41)));
  return values;
}

struct Moments {
  Moments(DType dtype, std::int64_t n)
      : values(dtype, {n}), exponents(DType::u8, {(n + kMomentBlock - 1) / kMomentBlock}) {}
  Moment moment() {
    return values.view().dtype == DType::u8 ? Moment(values.view(), exponents.view()) : Moment(values.view());
  }
  TypedValues values, exponents;
};

TEST(Bf16Moments, HaveTheBitsOfTheScalarCode) {
  Threads threads(2);
  for_each_target([&](const char* target) {
    for (const auto n : kMomentSizes) {
      auto p = TypedValues::random(DType::f32, {n}, 1), expected_p = p;
      Moments m(DType::bf16, n), v(DType::bf16, n), expected_m = m, expected_v = v;
      for (int t = 1; t <= 3; ++t) {
        const auto grad = gradients(n, 10 + static_cast<std::uint64_t>(t));
        adam(threads.stream, {p.view(), {}}, grad.view(), m.moment(), v.moment(), control().view(), adam_options(t),
             kChance);
        for (std::int64_t i = 0; i < n; ++i) {
          auto &kept_m = expected_m.values.view().as<bf16>()[i], &kept_v = expected_v.values.view().as<bf16>()[i];
          float first = to_float(kept_m), second = to_float(kept_v);
          scalar_step(static_cast<float>(grad[i]), expected_p.view().as<float>()[i], first, second, adam_options(t));
          kept_m.bits = bf16_of(first, chance_of(i) & 0xffff);
          kept_v.bits = bf16_of(second, chance_of(i) >> 16);
        }
      }
      ASSERT_TRUE(m.values.bytes() == expected_m.values.bytes()) << target << " " << n;
      ASSERT_TRUE(v.values.bytes() == expected_v.values.bytes()) << target << " " << n;
      ASSERT_TRUE(p.bytes() == expected_p.bytes()) << target << " " << n;
    }
  });
}

TEST(ByteMoments, HaveTheBitsOfTheScalarCode) {
  Threads threads(2);
  for_each_target([&](const char* target) {
    for (const auto n : kMomentSizes) {
      auto p = TypedValues::random(DType::f32, {n}, 1), expected_p = p;
      Moments m(DType::u8, n), v(DType::u8, n), expected_m = m, expected_v = v;
      for (int t = 1; t <= 3; ++t) {
        const auto grad = gradients(n, 10 + static_cast<std::uint64_t>(t));
        adam(threads.stream, {p.view(), {}}, grad.view(), m.moment(), v.moment(), control().view(), adam_options(t),
             kChance);
        for (std::int64_t block = 0; block < n; block += kMomentBlock) {
          const std::int64_t end = std::min(n, block + kMomentBlock);
          std::vector<float> first, second;
          double largest_m = 0, largest_v = 0;
          auto &exponent_m = expected_m.exponents.view().as<std::uint8_t>()[block / kMomentBlock],
               &exponent_v = expected_v.exponents.view().as<std::uint8_t>()[block / kMomentBlock];
          for (std::int64_t i = block; i < end; ++i) {
            first.push_back(
                static_cast<float>(kFirst.value(expected_m.values.view().as<std::uint8_t>()[i], exponent_m)));
            second.push_back(
                static_cast<float>(kSecond.value(expected_v.values.view().as<std::uint8_t>()[i], exponent_v)));
            scalar_step(static_cast<float>(grad[i]), expected_p.view().as<float>()[i], first.back(), second.back(),
                        adam_options(t));
            largest_m = std::max(largest_m, std::abs(double{first.back()}));
            largest_v = std::max(largest_v, double{second.back()});
          }
          exponent_m = static_cast<std::uint8_t>(kFirst.exponent(largest_m));
          exponent_v = static_cast<std::uint8_t>(kSecond.exponent(largest_v));
          for (std::int64_t i = block; i < end; ++i) {
            const auto j = static_cast<std::size_t>(i - block);
            expected_m.values.view().as<std::uint8_t>()[i] = kFirst.code(first[j], exponent_m, chance_of(i) & 0xffff);
            expected_v.values.view().as<std::uint8_t>()[i] = kSecond.code(second[j], exponent_v, chance_of(i) >> 16);
          }
        }
      }
      ASSERT_TRUE(m.exponents.bytes() == expected_m.exponents.bytes()) << target << " " << n;
      ASSERT_TRUE(v.exponents.bytes() == expected_v.exponents.bytes()) << target << " " << n;
      ASSERT_TRUE(m.values.bytes() == expected_m.values.bytes()) << target << " " << n;
      ASSERT_TRUE(v.values.bytes() == expected_v.values.bytes()) << target << " " << n;
      ASSERT_TRUE(p.bytes() == expected_p.bytes()) << target << " " << n;
    }
  });
}

TEST(Bf16Moments, OfSgdHaveTheBitsOfTheScalarCode) {
  Threads threads(2);
  for_each_target([&](const char* target) {
    for (const auto n : kMomentSizes) {
      auto p = TypedValues::random(DType::f32, {n}, 1), expected_p = p;
      TypedValues b(DType::bf16, {n}), expected_b = b;
      for (int t = 0; t < 3; ++t) {
        const auto grad = gradients(n, 10 + static_cast<std::uint64_t>(t));
        const SgdOptions o{.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .first_step = t == 0};
        sgd(threads.stream, {p.view(), {}}, grad.view(), b.view(), control().view(), o, kChance);
        for (std::int64_t i = 0; i < n; ++i) {
          float& weight = expected_p.view().as<float>()[i];
          auto& kept = expected_b.view().as<bf16>()[i];
          float g = std::fma(o.weight_decay, weight, static_cast<float>(grad[i]));
          if (!o.first_step) g = std::fma(o.momentum, to_float(kept), g);
          kept.bits = bf16_of(g, chance_of(i) & 0xffff);
          weight = std::fma(-o.lr, g, weight);
        }
      }
      ASSERT_TRUE(b.bytes() == expected_b.bytes()) << target << " " << n;
      ASSERT_TRUE(p.bytes() == expected_p.bytes()) << target << " " << n;
    }
  });
}

// A moment that shrinks by a thousandth each step, far less than its last bit, must shrink all the same.
TEST(NarrowMoments, FollowSmallChangesOnAverage) {
  Threads threads(2);
  constexpr std::int64_t kCount = 1 << 15;
  for (const DType dtype : {DType::bf16, DType::u8}) {
    TypedValues p(DType::f32, {kCount}), none(DType::f32, {kCount});
    Moments m(dtype, kCount), v(dtype, kCount);
    AdamOptions o = adam_options(1);
    const auto ones = [&] {
      TypedValues values(DType::f32, {kCount});
      for (std::int64_t i = 0; i < kCount; ++i) values.set(i, 1);
      return values;
    }();
    o.beta1 = o.beta2 = 0;  // both moments are 1 after this step
    adam(threads.stream, {p.view(), {}}, ones.view(), m.moment(), v.moment(), control().view(), o, {{1}, 0});
    o.beta1 = o.beta2 = 0.999f;
    for (std::uint64_t t = 2; t < 502; ++t)
      adam(threads.stream, {p.view(), {}}, none.view(), m.moment(), v.moment(), control().view(), o,
           {mix(RngKey{1}, t), 0});
    double first = 0, second = 0;
    for (std::int64_t i = 0; i < kCount; ++i) {
      if (dtype == DType::bf16) {
        first += m.values[i];
        second += v.values[i];
      } else {
        first += kFirst.value(m.values.view().as<std::uint8_t>()[i],
                              m.exponents.view().as<std::uint8_t>()[i / kMomentBlock]);
        second += kSecond.value(v.values.view().as<std::uint8_t>()[i],
                                v.exponents.view().as<std::uint8_t>()[i / kMomentBlock]);
      }
    }
    const double exact = std::pow(0.999, 500);
    EXPECT_NEAR(first / kCount / exact, 1, 0.01) << name_of(dtype);
    EXPECT_NEAR(second / kCount / exact, 1, 0.01) << name_of(dtype);
  }
}

// A second moment never rounds to nothing, whatever its neighbours are: the step would be divided by eps alone.
TEST(ByteMoments, KeepTheLeastSecondMomentFromVanishing) {
  Threads threads(1);
  TypedValues p(DType::f32, {128}), grad(DType::f32, {128});
  for (std::int64_t i = 0; i < 128; ++i) grad.set(i, i == 0 ? 1e3f : i == 1 ? 0 : 1e-12f);
  Moments m(DType::u8, 128), v(DType::u8, 128);
  for (int t = 1; t <= 50; ++t) {
    AdamOptions o = adam_options(t);
    o.eps = 0;
    adam(threads.stream, {p.view(), {}}, grad.view(), m.moment(), v.moment(), control().view(), o,
         {mix(RngKey{3}, static_cast<std::uint64_t>(t)), 0});
    if (t == 1) p.set(1, 0);  // 0 / 0, with no eps
    EXPECT_EQ(v.values.view().as<std::uint8_t>()[1], 0);
    for (std::int64_t i = 2; i < 128; ++i) EXPECT_GT(v.values.view().as<std::uint8_t>()[i], 0);
  }
  for (std::int64_t i = 2; i < 128; ++i) EXPECT_LT(std::abs(p[i]), 1) << i;
}

// What is on the grid stays there: neither chance nor a neighbour's new size may move it, as long as it is in reach.
TEST(ByteMoments, KeepWhatTheyCanRepresent) {
  Threads threads(1);
  constexpr std::int64_t kCount = 1280;
  TypedValues p(DType::f32, {kCount}), grad(DType::f32, {kCount});
  Moments m(DType::u8, kCount), v(DType::u8, kCount);
  for (std::int64_t i = 0; i < kCount; ++i)
    grad.set(i, std::ldexp(1 + static_cast<float>(i % 8) / 8, -static_cast<int>(i % 5)) * (i % 3 == 0 ? -1.0f : 1.0f));
  AdamOptions o = adam_options(1);
  o.beta1 = o.beta2 = 0;
  adam(threads.stream, {p.view(), {}}, grad.view(), m.moment(), v.moment(), control().view(), o, kChance);
  for (std::int64_t i = 0; i < kCount; ++i)
    EXPECT_EQ(
        kFirst.value(m.values.view().as<std::uint8_t>()[i], m.exponents.view().as<std::uint8_t>()[i / kMomentBlock]),
        grad[i]);
}

TEST(NarrowMoments, SameBitsForAnyThreadCount) {
  for (const DType dtype : {DType::bf16, DType::u8})
    expect_same_bits_for_any_thread_count([&](CpuStream& stream) {
      constexpr std::int64_t kCount = 300'007;
      const auto grad = TypedValues::random(DType::bf16, {kCount}, 2);
      auto p = TypedValues::random(DType::f32, {kCount}, 1);
      Moments m(dtype, kCount), v(dtype, kCount);
      adam(stream, {p.view(), {}}, grad.view(), m.moment(), v.moment(), control().view(), adam_options(1), kChance);
      return std::vector{p, m.values, m.exponents, v.values, v.exponents};
    });
}

// Two halves stepped apart give what the whole gives: chance is by place.
TEST(NarrowMoments, MayBeSteppedInParts) {
  Threads threads(2);
  constexpr std::int64_t kCount = 5 * kMomentBlock, kCut = 2 * kMomentBlock;
  const auto part = [](const View& all, std::int64_t begin, std::int64_t count) {
    return View{
        static_cast<std::byte*>(all.data) + static_cast<std::size_t>(begin) * size_of(all.dtype), all.dtype, {count}};
  };
  for (const DType dtype : {DType::bf16, DType::u8}) {
    auto grad = gradients(kCount, 2);
    const auto run = [&](const std::vector<std::int64_t>& cuts) {
      auto p = TypedValues::random(DType::f32, {kCount}, 1);
      Moments m(dtype, kCount), v(dtype, kCount);
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        const std::int64_t begin = cuts[i], count = cuts[i + 1] - cuts[i];
        const auto of = [&](Moments& moments) {
          const View values = part(moments.values.view(), begin, count);
          if (dtype == DType::bf16) return Moment(values);
          return Moment(values, part(moments.exponents.view(), begin / kMomentBlock, count / kMomentBlock));
        };
        adam(threads.stream, {part(p.view(), begin, count), {}}, part(grad.view(), begin, count), of(m), of(v),
             control().view(), adam_options(1), {kChance.key, kChance.first + begin});
      }
      return std::vector{p.bytes(), m.values.bytes(), v.values.bytes(), m.exponents.bytes(), v.exponents.bytes()};
    };
    EXPECT_TRUE(run({0, kCount}) == run({0, kCut, kCount})) << name_of(dtype);
  }
}

TEST(NarrowMoments, RejectOtherForms) {
  Threads threads(1);
  TypedValues p(DType::f32, {4}), half(DType::f16, {4}), wide(DType::f32, {4}), bytes(DType::u8, {4});
  const auto step = [&](const Moment& m, const Moment& v) {
    adam(threads.stream, {p.view(), {}}, p.view(), m, v, control().view(), adam_options(1));
  };
  EXPECT_THROW(step(half.view(), half.view()), Error);
  EXPECT_THROW(step(wide.view(), half.view()), Error);
  EXPECT_THROW(step(bytes.view(), bytes.view()), Error);
  EXPECT_THROW(sgd(threads.stream, {p.view(), {}}, p.view(), bytes.view(), control().view(),
                   {.lr = 1, .momentum = 0.9f, .weight_decay = 0, .first_step = true}),
               Error);
}

}  // namespace
}  // namespace zeepo
