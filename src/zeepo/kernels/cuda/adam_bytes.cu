#include "zeepo/kernels/cuda/adam_bytes.h"

#include "zeepo/kernels/cuda/adam_element.h"
#include "zeepo/kernels/cuda/master_weights.h"
#include "zeepo/kernels/cuda/moments.h"

namespace zeepo::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSharers = kMomentBlock / kPack;  // threads that work on a block: half a warp

struct ByteMoment {
  std::uint8_t *codes, *exponents;
};

__device__ __forceinline__ float largest_of_block(const float (&x)[kPack]) {
  float largest = 0;
#pragma unroll
  for (int j = 0; j < kPack; ++j) largest = fmaxf(largest, fabsf(x[j]));
#pragma unroll
  for (int apart = kSharers / 2; apart > 0; apart /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, apart));
  return largest;
}

// A thread takes kPack elements. All threads of a warp look for the largest together, those past the end too.
template <class G, class W>
__global__ void __launch_bounds__(kThreads)
    adam_bytes_kernel(W weights, const G* grad, ByteMoment m, ByteMoment v, const StepControl* control, AdamFactors f,
                      Chance chance, std::int64_t n) {
  if (control->skip != 0) return;
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  const std::int64_t block = i / kMomentBlock;
  const auto count = static_cast<int>(n - i < 0 ? 0 : n - i < kPack ? n - i : kPack);
  float p[kPack] = {}, g[kPack] = {}, first[kPack] = {}, second[kPack] = {};
  using Codes = Pack<std::uint8_t, kPack>;
  if (count > 0) {
    const ByteCode<Order::first> first_code(m.exponents[block]);
    const ByteCode<Order::second> second_code(v.exponents[block]);
    if (count == kPack) {
      weights.get(i, p);
      load<kPack>(grad + i, g);
      const auto ms = *reinterpret_cast<const Codes*>(m.codes + i), vs = *reinterpret_cast<const Codes*>(v.codes + i);
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        first[j] = first_code.value(ms.at[j]);
        second[j] = second_code.value(vs.at[j]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        if (j >= count) continue;
        float one[1];
        weights.get(i + j, one);
        p[j] = one[0];
        g[j] = widen(grad[i + j]);
        first[j] = first_code.value(m.codes[i + j]);
        second[j] = second_code.value(v.codes[i + j]);
      }
    }
    const float factor = control->grad_factor;
#pragma unroll
    for (int j = 0; j < kPack; ++j)
      if (j < count) step_element(f, g[j], factor, p[j], first[j], second[j]);
  }
  const std::uint32_t first_exponent = ByteCode<Order::first>::exponent_of(largest_of_block(first));
  const std::uint32_t second_exponent = ByteCode<Order::second>::exponent_of(largest_of_block(second));
  if (count == 0) return;

  const RngKey key = block_key(chance.key, chance.first / kMomentBlock + block);
  const ByteCode<Order::first> first_code(first_exponent);
  const ByteCode<Order::second> second_code(second_exponent);
  Codes ms, vs;
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    const std::uint32_t bits = chance_bits(key, static_cast<std::uint32_t>(i % kMomentBlock) + j);
    ms.at[j] = first_code.code(first[j], bits);
    vs.at[j] = second_code.code(second[j], bits);
  }
  if (count == kPack) {
    *reinterpret_cast<Codes*>(m.codes + i) = ms;
    *reinterpret_cast<Codes*>(v.codes + i) = vs;
    weights.put(p, i);
  } else {
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      if (j >= count) continue;
      m.codes[i + j] = ms.at[j];
      v.codes[i + j] = vs.at[j];
      const float one[1] = {p[j]};
      weights.put(one, i + j);
    }
  }
  if (i % kMomentBlock == 0) {
    m.exponents[block] = static_cast<std::uint8_t>(first_exponent);
    v.exponents[block] = static_cast<std::uint8_t>(second_exponent);
  }
}

}  // namespace

void adam_bytes(CudaStream& stream, const Weights& weights, ConstView grad, const Moment& m, const Moment& v,
                ConstView control, const AdamOptions& options, const Chance& chance) {
  const std::int64_t n = grad.elements();
  if (n == 0) return;
  const auto bytes = [](const Moment& moment) {
    return ByteMoment{moment.values.as<std::uint8_t>(), moment.exponents.as<std::uint8_t>()};
  };
  const AdamFactors factors = adam_factors(options);
  with_weights(weights, [&](auto form) {
    with_float_type(grad.dtype, [&](auto zero) {
      using G = decltype(zero);
      if (!form.packable() ||
          !all_packable(grad.data, static_cast<const void*>(m.values.data), static_cast<const void*>(v.values.data)))
        throw Error("adam: 8-bit moments of memory that does not start at a multiple of 16 bytes");
      adam_bytes_kernel<<<static_cast<unsigned>(pieces(n, kThreads * kPack)), kThreads, 0, stream.handle()>>>(
          form, grad.as<G>(), bytes(m), bytes(v), control.as<StepControl>(), factors, chance, n);
      check_launch();
    });
  });
}

}  // namespace zeepo::cuda
