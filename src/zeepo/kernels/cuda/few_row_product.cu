#include "zeepo/kernels/few_row_product.h"

#include <algorithm>

#include "zeepo/kernels/cuda/early_launch.h"
#include "zeepo/kernels/cuda/few_row_weights.h"
#include "zeepo/kernels/cuda/math.h"

namespace zeepo {
namespace {

using namespace cuda;

constexpr int kColumns = 8;  // rows of x that a product of the matrix units takes
static_assert(kFewRows == kColumns);
constexpr int kRowPad = 32;  // elements between rows of x in shared memory: neighbours meet no bank twice

template <class T>
struct Operands {
  const T *x, *bias, *norm, *sum;
  T* y;
  float eps;
  int m, tiles;
  std::int64_t n, k;
};

__device__ __forceinline__ void add_product(float (&sum)[4], const Left& left, uint2 right, __nv_bfloat16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), "r"(right.x), "r"(right.y));
}
__device__ __forceinline__ void add_product(float (&sum)[4], const Left& left, uint2 right, __half) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(left.at[0]), "r"(left.at[1]), "r"(left.at[2]), "r"(left.at[3]), "r"(right.x), "r"(right.y));
}

// The lane's part of a step of a row of x; zero where there is none.
template <class Rows, class T>
__device__ __forceinline__ void load_right(uint2 (&right)[kProducts], const T* row, bool is_row, int step,
                                           std::int64_t k, int t) {
  const std::int64_t first = std::int64_t{step} * kStep;
  if constexpr (std::is_same_v<Rows, PlainRows<T>>) {  // eight neighbours, for two products
#pragma unroll
    for (int i = 0; i < kProducts; i += 2) {
      const std::int64_t at = first + i * 16 + t * 8;
      const uint4 four = is_row && at < k ? *reinterpret_cast<const uint4*>(row + at) : uint4{0, 0, 0, 0};
      right[i] = {four.x, four.y};
      right[i + 1] = {four.z, four.w};
    }
  } else {
#pragma unroll
    for (int i = 0; i < kProducts; ++i) right[i] = is_row ? Rows::right(row + first, i, t) : uint2{0, 0};
  }
}

// The RMS norm of all rows of x, in shared memory. What a thread has of the first row and of the norm's weight stays in
// registers, where the row is short.
template <int kWarps, class T>
class Normaliser {
 public:
  // Before x is there.
  __device__ __forceinline__ explicit Normaliser(const Operands<T>& o) : packs_(static_cast<int>(o.k / kPack)) {
    if (threadIdx.x < packs_) weight_ = pack_at<kPack>(o.norm + threadIdx.x * kPack);
  }
  __device__ __forceinline__ void run(const Operands<T>& o, T* to) const {
    __shared__ float parts[kFewRows][kWarps];
    Pack<T, kPack> first{};
    if (threadIdx.x < packs_) first = pack_at<kPack>(o.x + threadIdx.x * kPack);
    for (int r = 0; r < o.m; ++r) {
      float squares = 0;
      for (int p = threadIdx.x; p < packs_; p += kThreads) {
        float v[kPack];
        widen(r == 0 && p < kThreads ? first : Pack<T, kPack>(pack_at<kPack>(o.x + r * o.k + p * kPack)), v);
#pragma unroll
        for (int j = 0; j < kPack; ++j) squares = __fmaf_rn(v[j], v[j], squares);
      }
#pragma unroll
      for (int apart = kWarp / 2; apart > 0; apart /= 2) squares += __shfl_xor_sync(~0u, squares, apart);
      if (threadIdx.x % kWarp == 0) parts[r][threadIdx.x / kWarp] = squares;
    }
    __syncthreads();
    for (int r = 0; r < o.m; ++r) {
      float squares = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) squares += parts[r][w];
      const float rstd = 1.0f / sqrtf(squares / static_cast<float>(o.k) + o.eps);
      for (int p = threadIdx.x; p < packs_; p += kThreads) {
        float v[kPack], w[kPack];
        widen(r == 0 && p < kThreads ? first : Pack<T, kPack>(pack_at<kPack>(o.x + r * o.k + p * kPack)), v);
        widen(p < kThreads ? weight_ : Pack<T, kPack>(pack_at<kPack>(o.norm + p * kPack)), w);
#pragma unroll
        for (int j = 0; j < kPack; ++j) v[j] = v[j] * rstd * w[j];
        store<kPack>(v, to + r * (o.k + kRowPad) + p * kPack);
      }
    }
    __syncthreads();
  }

 private:
  static constexpr int kThreads = kWarps * kWarp;
  int packs_;
  Pack<T, kPack> weight_{};
};
template <class T>
struct NoNormaliser {
  __device__ __forceinline__ explicit NoNormaliser(const Operands<T>&) {}
};

template <class T>
__device__ __forceinline__ float rounded(float x) {
  return widen(narrow<T>(x));
}

// The steps of a warp, one after another through all tiles of its block.
template <int kWarps>
struct Cursor {
  int tile, step;
  __device__ __forceinline__ Cursor() : tile(static_cast<int>(blockIdx.x)), step(threadIdx.x / kWarp) {}
  __device__ __forceinline__ void advance(int steps) {
    step += kWarps;
    if (step < steps) return;
    step = threadIdx.x / kWarp;
    tile += static_cast<int>(gridDim.x);
  }
};

// How a warp has weights ahead of their use: plain ones in shared memory, codes in registers.
template <class Rows, int kWarps, bool kGated>
class Ahead {
 public:
  static constexpr std::size_t kBytes = 0;
  using Held = typename Rows::Held;
  __device__ __forceinline__ Ahead(const Rows& weight, const TileRows<kGated>& rows, int tiles, int steps, std::byte*)
      : weight_(weight), rows_(rows), tiles_(tiles), steps_(steps) {
    ask(held_[0]);
    ask(held_[1]);
  }
  // The next step's, of which every second has `odd`; and asks for another.
  template <class Use>
  __device__ __forceinline__ void next(bool odd, const Use& use) {
    if (odd) {
      use(held_[1]);
      ask(held_[1]);
    } else {
      use(held_[0]);
      ask(held_[0]);
    }
  }

 private:
  __device__ __forceinline__ void ask(Held& held) {
    if (cursor_.tile < tiles_ && cursor_.step < steps_)
      weight_.load(held, rows_, cursor_.tile, cursor_.step, threadIdx.x % kWarp / 4, threadIdx.x % 4);
    cursor_.advance(steps_);
  }
  const Rows& weight_;
  TileRows<kGated> rows_;
  int tiles_, steps_;
  Cursor<kWarps> cursor_;
  Held held_[2];
};

template <class T, int kWarps, bool kGated>
class Ahead<PlainRows<T>, kWarps, kGated> {
 public:
  using Rows = PlainRows<T>;
  using Held = typename Rows::Held;
  static constexpr std::size_t kBytes = kWarps * Rows::kSlots * Rows::kSlotBytes;
  __device__ __forceinline__ Ahead(const Rows& weight, const TileRows<kGated>& rows, int tiles, int steps,
                                   std::byte* room)
      : weight_(weight), rows_(rows), tiles_(tiles), steps_(steps) {
    slots_ = static_cast<unsigned>(__cvta_generic_to_shared(room)) +
             static_cast<unsigned>(threadIdx.x / kWarp * Rows::kSlots * Rows::kSlotBytes);
    for (int i = 0; i < Rows::kSlots; ++i) ask(i);
  }
  template <class Use>
  __device__ __forceinline__ void next(bool, const Use& use) {
    Held held;
    Rows::wait();
    Rows::take(held, slots_ + used_ * static_cast<unsigned>(Rows::kSlotBytes), threadIdx.x % kWarp / 4,
               threadIdx.x % 4);
    ask(static_cast<int>(used_));
    used_ = used_ + 1 == Rows::kSlots ? 0 : used_ + 1;
    use(held);
  }

 private:
  __device__ __forceinline__ void ask(int slot) {
    if (cursor_.tile < tiles_ && cursor_.step < steps_)
      weight_.start(slots_ + static_cast<unsigned>(slot * Rows::kSlotBytes), rows_, cursor_.tile, cursor_.step);
    Rows::commit();  // a group for each step, be it empty: wait() counts them
    cursor_.advance(steps_);
  }
  const Rows& weight_;
  TileRows<kGated> rows_;
  int tiles_, steps_;
  Cursor<kWarps> cursor_;
  unsigned slots_, used_ = 0;
};

// Blocks that a multiprocessor has at once: what is on its way in shared memory is that of two, in registers of three.
template <class Rows>
constexpr int blocks_at_once(int warps) {
  if (warps > 8) return 1;
  return Ahead<Rows, 8, false>::kBytes > 0 ? 2 : 3;
}

// A block has every gridDim.x-th tile of the weight's rows; its warps have every kWarps-th step of k, whose sums are
// added in the warps' order. A warp asks for steps ahead, across the ends of tiles, from before the kernel may begin.
template <class Rows, class T, int kWarps, bool kNorm, bool kGated>
__global__ void __launch_bounds__(kWarps* kWarp, blocks_at_once<Rows>(kWarps))
    few_rows_kernel(const Rows weight, const Operands<T> o) {
  extern __shared__ __align__(128) std::byte shared[];
  constexpr int kTokens = kColumns, kOut = TileRows<kGated>::kOut;
  static_assert(kTokens * kOut <= kWarps * kWarp, "a thread has one result of a tile");
  using Asked = Ahead<Rows, kWarps, kGated>;
  auto* const parts = reinterpret_cast<float*>(shared + Asked::kBytes);  // (kWarps, kTokens, kTile)
  T* const normalised = reinterpret_cast<T*>(parts + kWarps * kTokens * kTile);
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const int steps = static_cast<int>((o.k + kStep - 1) / kStep);

  let_next_kernel_start();
  Asked asked(weight, {o.n}, o.tiles, steps, shared);
  [[maybe_unused]] const std::conditional_t<kNorm, Normaliser<kWarps, T>, NoNormaliser<T>> normaliser(o);
  wait_for_kernel_before();
  if constexpr (kNorm) normaliser.run(o, normalised);
  const T* const x = kNorm ? normalised : o.x;
  const std::int64_t row_stride = kNorm ? o.k + kRowPad : o.k;

  const int out_row = threadIdx.x % kOut, token = threadIdx.x / kOut;
  bool odd = false;
  for (int tile = static_cast<int>(blockIdx.x); tile < o.tiles; tile += static_cast<int>(gridDim.x)) {
    const std::int64_t column = std::int64_t{tile} * kOut + out_row;
    const bool writes = token < o.m && column < o.n;
    float bias = 0, bias_of_value = 0, before = 0;
    if (writes) {
      if (o.bias) bias = widen(o.bias[column]);
      if (kGated && o.bias) bias_of_value = widen(o.bias[o.n + column]);
      if (o.sum) before = widen(o.sum[token * o.n + column]);
    }
    float sum[4] = {};
    for (int step = warp; step < steps; step += kWarps, odd = !odd) {
      uint2 right[kProducts];
      load_right<Rows>(right, x + g * row_stride, g < o.m, step, o.k, t);
      asked.next(odd, [&](const typename Rows::Held& held) {
#pragma unroll
        for (int i = 0; i < kProducts; ++i) add_product(sum, Rows::left(held, i), right[i], T{});
      });
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) parts[(warp * kTokens + 2 * t + j % 2) * kTile + g + j / 2 * 8] = sum[j];
    __syncthreads();
    if (writes) {
      const auto total = [&](int at, float added) {
        float value = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) value += parts[(w * kTokens + token) * kTile + at];
        return rounded<T>(o.bias ? value + added : value);
      };
      float value = total(out_row, bias);
      if constexpr (kGated) value = rounded<T>(value * sigmoid(value) * total(out_row + kOut, bias_of_value));
      if (o.sum) value += before;
      o.y[token * o.n + column] = narrow<T>(value);
    }
    __syncthreads();
  }
}

constexpr int kFewWarps = 8, kMostWarps = 16;
constexpr std::size_t kMostShared = std::size_t{220} << 10;

template <class Rows>
constexpr std::size_t kAheadBytes = Ahead<Rows, kFewWarps, false>::kBytes;

std::size_t shared_bytes(std::size_t ahead, int warps, bool norm, std::int64_t m, std::int64_t k, std::size_t element) {
  const std::size_t parts = static_cast<std::size_t>(warps * kColumns * kTile) * sizeof(float);
  return ahead + parts + (norm ? static_cast<std::size_t>(m * (k + kRowPad)) * element : 0);
}

bool same(const ConstView& a, const View& y) { return !a || a.dtype == y.dtype; }

// As many blocks as are there at once. Codes are on their way in registers: where there are fewer tiles than
// multiprocessors, more warps share one.
template <class Rows, class T, int kWarps, bool kNorm, bool kGated>
void launch_warps(CudaStream& stream, const Rows& rows, const Operands<T>& o) {
  constexpr std::size_t kAhead = Ahead<Rows, kWarps, kGated>::kBytes;
  const std::size_t bytes = shared_bytes(kAhead, kWarps, kNorm, o.m, o.k, sizeof(T));
  const int most = kAhead == 0 ? 3 : 2;
  const int blocks = std::min(o.tiles, most * stream.multiprocessors());
  launch_early(stream, "a product of few rows", few_rows_kernel<Rows, T, kWarps, kNorm, kGated>,
               {static_cast<unsigned>(blocks), kWarps * kWarp, bytes}, rows, o);
}
template <class Rows, class T, bool kNorm, bool kGated>
void launch(CudaStream& stream, const Rows& rows, const Operands<T>& o) {
  if constexpr (kAheadBytes<Rows> == 0)
    if (o.tiles <= stream.multiprocessors()) return launch_warps<Rows, T, kMostWarps, kNorm, kGated>(stream, rows, o);
  launch_warps<Rows, T, kFewWarps, kNorm, kGated>(stream, rows, o);
}

template <class Rows, class T>
void launch_any(CudaStream& stream, const Rows& rows, const Operands<T>& o, bool gated) {
  if (gated)
    o.norm ? launch<Rows, T, true, true>(stream, rows, o) : launch<Rows, T, false, true>(stream, rows, o);
  else
    o.norm ? launch<Rows, T, true, false>(stream, rows, o) : launch<Rows, T, false, false>(stream, rows, o);
}

template <class T>
void launch_type(CudaStream& stream, const FewRowProduct& op) {
  const std::int64_t m = op.y.shape.rows(), n = op.y.shape[-1], k = op.x.shape[-1];
  const std::int64_t tile = op.swiglu ? kTile / 2 : kTile;
  const Operands<T> o{op.x.as<T>(),
                      op.bias.as<T>(),
                      op.norm.as<T>(),
                      op.sum.as<T>(),
                      op.y.as<T>(),
                      op.eps,
                      static_cast<int>(m),
                      static_cast<int>(pieces(n, tile)),

                      n,
                      k};
  const auto with = [&](const auto& rows) {
    using Rows = std::remove_cvref_t<decltype(rows)>;
    launch_any<Rows, T>(stream, rows, o, op.swiglu);
  };
  switch (op.coded) {
    case CodedType::same: return with(PlainRows<T>{op.weight.as<T>(), k});
    case CodedType::int8: return with(Int8Rows<T>{op.codes, k});
    case CodedType::int4: return with(Int4Rows<T>{op.codes, k});
  }
}

}  // namespace

bool takes(CudaStream& stream, const FewRowProduct& op) {
  const std::int64_t m = op.y.shape.rows(), n = op.y.shape[-1], k = op.x.shape[-1];
  const DType type = op.y.dtype;
  if (stream.batch_invariant() || stream.architecture() < 8 || (type != DType::bf16 && type != DType::f16))
    return false;
  if (m < 1 || m > kFewRows || n < 1 || k < kPack || n > (std::int64_t{1} << 31)) return false;
  if (!all_packable(op.x.data, op.norm.data, k) || !same(op.x, op.y) || !same(op.norm, op.y) || !same(op.bias, op.y) ||
      !same(op.sum, op.y))
    return false;
  if (op.coded == CodedType::same ? !packable(op.weight.data) || op.weight.dtype != type
                                  : k % kCodedRow != 0 || reinterpret_cast<std::uintptr_t>(op.codes) % 4 != 0)
    return false;
  const std::size_t ahead = op.coded == CodedType::same ? kAheadBytes<PlainRows<__half>> : 0;
  return shared_bytes(ahead, kMostWarps, bool(op.norm), m, k, size_of(type)) <= kMostShared;
}

void multiply(CudaStream& stream, const FewRowProduct& op) {
  op.y.dtype == DType::bf16 ? launch_type<__nv_bfloat16>(stream, op) : launch_type<__half>(stream, op);
}

}  // namespace zeepo
