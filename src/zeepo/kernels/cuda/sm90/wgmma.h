// Hopper's matrix instruction of a warpgroup (four warps): 64 × N += 64 × 16 times 16 × N, with fp32 sums in registers.
//
// Right operands are tiles in shared memory (sm90/tile.h); the left one is a tile or lies in registers, in the layout
// that sums come in. The instructions run behind the threads: neither sums nor a left operand in registers may be
// touched between the call and the wait() for its group.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace zeepo::cuda::sm90 {

// Orders registers that ordinary code wrote before the instructions that follow.
__device__ __forceinline__ void fence_registers() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Closes a group of instructions. wait<n> returns when at most the n last groups are still running.
__device__ __forceinline__ void close_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int n>
__device__ __forceinline__ void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}

// What runs along the rows of the right operand's tile: the summed index k, or the columns n of the result.
enum class Along { k, n };

// The operands of the assembly below, a power of two at a time.
#define ZEEPO_SUMS_8(d, i)                                                                                    \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define ZEEPO_SUMS_32(d, i) ZEEPO_SUMS_8(d, i), ZEEPO_SUMS_8(d, i + 8), ZEEPO_SUMS_8(d, i + 16), ZEEPO_SUMS_8(d, i + 24)
#define ZEEPO_REGISTERS_32                                                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define ZEEPO_REGISTERS_64                                                                                      \
  ZEEPO_REGISTERS_32                                                                                            \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define ZEEPO_WGMMA_TILES_64(type)                                                        \
  asm volatile(                                                                           \
      "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"                                          \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" ZEEPO_REGISTERS_32 \
      "}, %32, %33, p, 1, 1, 0, %35; }\n"                                                 \
      : ZEEPO_SUMS_32(d, 0)                                                               \
      : "l"(a), "l"(b), "r"(add), "n"(along == Along::n ? 1 : 0))
#define ZEEPO_WGMMA_TILES_128(type)                                                        \
  asm volatile(                                                                            \
      "{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"                                           \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" ZEEPO_REGISTERS_64 \
      "}, %64, %65, p, 1, 1, 0, %67; }\n"                                                  \
      : ZEEPO_SUMS_32(d, 0), ZEEPO_SUMS_32(d, 32)                                          \
      : "l"(a), "l"(b), "r"(add), "n"(along == Along::n ? 1 : 0))
#define ZEEPO_WGMMA_LEFT_64(type)                                                         \
  asm volatile(                                                                           \
      "{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"                                          \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" ZEEPO_REGISTERS_32 \
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38; }\n"                                   \
      : ZEEPO_SUMS_32(d, 0)                                                               \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(along == Along::n ? 1 : 0))
#define ZEEPO_WGMMA_LEFT_128(type)                                                         \
  asm volatile(                                                                            \
      "{ .reg .pred p; setp.ne.b32 p, %69, 0;\n"                                           \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" ZEEPO_REGISTERS_64 \
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70; }\n"                                    \
      : ZEEPO_SUMS_32(d, 0), ZEEPO_SUMS_32(d, 32)                                          \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(along == Along::n ? 1 : 0))

// d = a b, plus d where `add` is 1. d[4j + 2r + c] of a thread is row 16·warp + lane/4 + 8r, column 8j + 2(lane mod 4)
// + c. a and b are descriptors of tiles.
template <class T, Along along>
__device__ __forceinline__ void multiply(float (&d)[32], std::uint64_t a, std::uint64_t b, int add) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    ZEEPO_WGMMA_TILES_64("bf16");
  else
    ZEEPO_WGMMA_TILES_64("f16");
}
template <class T, Along along>
__device__ __forceinline__ void multiply(float (&d)[64], std::uint64_t a, std::uint64_t b, int add) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    ZEEPO_WGMMA_TILES_128("bf16");
  else
    ZEEPO_WGMMA_TILES_128("f16");
}
// The same with a in registers: a[r + 2h] holds columns 8h + 2(lane mod 4) + {0, 1} of row 16·warp + lane/4 + 8r.
template <class T, Along along>
__device__ __forceinline__ void multiply(float (&d)[32], const std::uint32_t (&a)[4], std::uint64_t b, int add) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    ZEEPO_WGMMA_LEFT_64("bf16");
  else
    ZEEPO_WGMMA_LEFT_64("f16");
}
template <class T, Along along>
__device__ __forceinline__ void multiply(float (&d)[64], const std::uint32_t (&a)[4], std::uint64_t b, int add) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    ZEEPO_WGMMA_LEFT_128("bf16");
  else
    ZEEPO_WGMMA_LEFT_128("f16");
}

#undef ZEEPO_SUMS_8
#undef ZEEPO_SUMS_32
#undef ZEEPO_REGISTERS_32
#undef ZEEPO_REGISTERS_64
#undef ZEEPO_WGMMA_TILES_64
#undef ZEEPO_WGMMA_TILES_128
#undef ZEEPO_WGMMA_LEFT_64
#undef ZEEPO_WGMMA_LEFT_128

// Two sums as one register of a left operand.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&both);
  } else {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&both);
  }
}
// Sums of 64 × 16k as k left operands.
template <class T, int n>
__device__ __forceinline__ void pack_all(const float (&sums)[n], std::uint32_t (&left)[n / 8][4]) {
#pragma unroll
  for (int k = 0; k < n / 8; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) left[k][i] = pack<T>(sums[8 * k + 2 * i], sums[8 * k + 2 * i + 1]);
}

}  // namespace zeepo::cuda::sm90
