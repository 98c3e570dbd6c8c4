// Matrix products by cuBLASLt, which thinks in columns: our c = a b, row by row, is its cᵀ = bᵀ aᵀ, and what we call
// transposed it does not, and the other way round.
#include "zeepo/kernels/matmul.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "zeepo/kernels/check_matmul.h"
#include "zeepo/kernels/cuda/cublas_lt.h"
#include "zeepo/kernels/cuda/fill_rows.h"
#include "zeepo/kernels/elementwise.h"

namespace zeepo {
namespace {

using namespace cuda;

// What a product's algorithm depends on: its shape and how its memory is aligned, never how long it took. So the same
// product gives the same bits wherever its operands live.
struct Product {
  int device;
  std::int64_t m, n, k;
  std::int64_t a_stride, c_stride;
  DType dtype, c_dtype;
  Transpose a, b;
  Write write;
  cublasLtEpilogue_t epilogue;              // what is done to the sums: nothing, BIAS or DGELU
  std::array<std::uint32_t, 4> alignments;  // of a, b, c and DGELU's operand, in bytes
  bool any_rows;                            // the algorithm is that of kPlannedRows rows

  auto key() const {
    return std::tie(device, m, n, k, a_stride, c_stride, dtype, c_dtype, a, b, write, epilogue, alignments, any_rows);
  }
  bool operator<(const Product& other) const { return key() < other.key(); }
};

// As many rows as algorithms for any number of them are chosen for: those of a training step.
constexpr std::int64_t kPlannedRows = 8192;

Description describe(const Product& p) {
  Description description = make_description();
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, p.b == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, p.a == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
  if (p.epilogue == CUBLASLT_EPILOGUE_BIAS) set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.dtype));
  if (p.epilogue == CUBLASLT_EPILOGUE_DGELU) {
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.c_stride);
    // Until it runs, any address that is aligned as the operand's: candidates depend on that.
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, std::uintptr_t{p.alignments[3]});
  }
  return description;
}

template <class T>
T config(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  std::size_t bytes = 0;
  cuda_check(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &bytes));
  return value;
}

// Which of cuBLASLt's candidates, best first by its own model, to take. Under load that lasts the GPU is slower than
// that model thinks: where k is short, Hopper kernels with tiles of about 128 × 128, whose warpgroups take turns at
// writing results, are then up to 22% faster than the first one (bench_cuda_matmul_algorithms). So they are for a
// longer k where what is added to is fp32, which is read and written meanwhile. All candidates that do not split k add
// along it in the same order: the same bits.
std::size_t choose(const Product& p, std::span<const cublasLtMatmulHeuristicResult_t> candidates) {
  constexpr std::int64_t kLongOfSums = 8192, kShort = 4096, kShortest = 2048;
  const auto tile = [&](std::size_t i) {
    return config<std::uint32_t>(candidates[i].algo, CUBLASLT_ALGO_CONFIG_TILE_ID);
  };
  const auto whole_k = [&](std::size_t i) {
    return candidates[i].state == CUBLAS_STATUS_SUCCESS &&
           config<std::int32_t>(candidates[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) <= 1;
  };
  if (size_of(p.dtype) != 2 || !whole_k(0)) return 0;
  const auto first_of = [&](std::initializer_list<std::uint32_t> tiles) -> std::size_t {
    for (std::size_t i = 1; i < candidates.size(); ++i)
      if (whole_k(i) && std::find(tiles.begin(), tiles.end(), tile(i)) != tiles.end()) return i;
    return 0;
  };
  if (p.c_dtype == DType::f32 && p.write == Write::add) {
    if (p.k > kLongOfSums || tile(0) == CUBLASLT_MATMUL_TILE_128x128 || tile(0) == CUBLASLT_MATMUL_TILE_128x160)
      return 0;
    if (p.k > kShort)
      if (const std::size_t found = first_of({CUBLASLT_MATMUL_TILE_128x128})) return found;
    return first_of({CUBLASLT_MATMUL_TILE_128x128, CUBLASLT_MATMUL_TILE_128x160});
  }
  if (p.k > kShort) return 0;
  if (p.k >= kShortest)
    if (const std::size_t found = first_of({CUBLASLT_MATMUL_TILE_128x128})) return found;
  return first_of({CUBLASLT_MATMUL_TILE_128x128, CUBLASLT_MATMUL_TILE_128x160, CUBLASLT_MATMUL_TILE_144x128,
                   CUBLASLT_MATMUL_TILE_168x128, CUBLASLT_MATMUL_TILE_176x128});
}

Planned without_algorithm(const Product& p) {
  const bool ta = p.a == Transpose::yes, tb = p.b == Transpose::yes;
  return {describe(p), make_layout(type_of(p.dtype), ta ? p.k : p.m, ta ? p.m : p.k, p.a_stride),
          make_layout(type_of(p.dtype), tb ? p.n : p.k, tb ? p.k : p.n, tb ? p.k : p.n),
          make_layout(type_of(p.c_dtype), p.m, p.n, p.c_stride)};
}

std::string text_of(const Product& p) {
  return fmt::format("({}, {}) x ({}, {}) of {}", p.m, p.k, p.k, p.n, name_of(p.dtype));
}

Planned plan(CudaStream& stream, const Product& p) {
  Planned planned = without_algorithm(p);
  if (p.any_rows && p.m != kPlannedRows) {
    Product many = p;
    many.m = kPlannedRows;
    const Planned& model = kept_plan(many, [&](const Product& product) { return plan(stream, product); });
    planned.take_algorithm_of(stream, model, text_of(p));
    return planned;
  }
  const Preference preference = make_preference();
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.alignments[1]);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.alignments[0]);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.alignments[2]);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.alignments[2]);
  if (p.any_rows) {  // room for the sums of a split k would depend on the rows
    const std::uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, none);
  }
  planned.take_algorithm(
      stream, preference, text_of(p),
      [&](std::span<const cublasLtMatmulHeuristicResult_t> candidates) { return choose(p, candidates); });
  return planned;
}

Product checked(CudaStream& stream, ConstView a, ConstView b, View c, const MatmulOptions& options) {
  const auto [m, n, k] = matmul_sizes(a, b, c, options);
  if (a.dtype != b.dtype || (c.dtype != a.dtype && c.dtype != DType::f32) ||
      (options.bias && options.bias.dtype != a.dtype))
    throw Error("matmul: a is {}, b is {}, c is {}: must be the same float type, or c fp32", name_of(a.dtype),
                name_of(b.dtype), name_of(c.dtype));
  const std::int64_t a_columns = a.shape[-1], a_stride = options.a_stride ? options.a_stride : a_columns;
  const std::int64_t c_stride = options.c_stride ? options.c_stride : n;
  if (a_stride < a_columns || c_stride < n)
    throw Error("matmul: rows {} and {} elements apart are shorter than those of a {} and c {}", a_stride, c_stride,
                a.shape.str(), c.shape.str());
  // A weight's gradient is a sum over all rows: it has no rows to keep apart.
  const bool any_rows = stream.batch_invariant() && options.a == Transpose::no;
  // The beginning of any row, not of this one.
  const auto alignment = [&](const void* data) {
    return any_rows ? std::min<std::uint32_t>(16, alignment_of(data)) : alignment_of(data);
  };
  return {stream.device(),
          m,
          n,
          k,
          a_stride,
          c_stride,
          a.dtype,
          c.dtype,
          options.a,
          options.b,
          options.write,
          options.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT,
          {alignment(a.data), alignment(b.data), alignment(c.data), 0},
          any_rows};
}

// `bias` where cuBLASLt takes it.
const void* aligned_bias(CudaStream& stream, ConstView bias) {
  if (alignment_of(bias.data) >= 16) return bias.data;
  if (bias.bytes() > kBiasBytes)
    throw Error("matmul: a bias of {} bytes that is not 16-byte aligned; there is room to align {}", bias.bytes(),
                kBiasBytes);
  std::byte* to = stream.workspace(CudaStream::kWorkspaceBytes) + CudaStream::kWorkspaceBytes - kBiasBytes;
  cuda_check(cudaMemcpyAsync(to, bias.data, bias.bytes(), cudaMemcpyDeviceToDevice, stream.handle()));
  return to;
}

// A part of a longer k is a product that is added to the ones before it; what is added to every row stands there first.
MatmulOptions without_parts(CudaStream& stream, ConstView a, View c, MatmulOptions options) {
  const auto part = std::exchange(options.part, {});
  const std::int64_t k = options.a == Transpose::yes ? a.shape.rows() : a.shape[-1];
  if (part.begin < 0 || part.begin + k > part.whole || c.dtype != DType::f32 || options.c_stride)
    throw Error("matmul: part [{}, {}) of k {} into {} c {}: must be within k, and c whole and fp32", part.begin,
                part.begin + k, part.whole, name_of(c.dtype), c.shape.str());
  const ConstView bias = std::exchange(options.bias, {});
  if (part.begin == 0 && bias) cuda::fill_rows(stream, bias, c);
  if (part.begin > 0 || bias) options.write = Write::add;
  return options;
}

// Whether a product takes the slope of an activation along: cuBLASLt has that of the tanh form of gelu, and wants what
// it is taken at aligned.
bool takes_slope(Activation f, ConstView a, ConstView b, ConstView before, ConstView c) {
  const auto aligned = [](const void* data) { return alignment_of(data) >= 16; };
  return f == Activation::gelu_tanh && size_of(c.dtype) == 2 && a.shape[-1] % 8 == 0 && c.shape[-1] % 8 == 0 &&
         aligned(a.data) && aligned(b.data) && aligned(before.data) && aligned(c.data);
}

// Times the slope of gelu at `before`, if there is one.
void multiply(CudaStream& stream, ConstView a, ConstView b, View c, const MatmulOptions& options,
              const void* before = nullptr) {
  Product p = checked(stream, a, b, c, options);
  if (p.m == 0 || p.n == 0) return;
  if (before) {
    p.epilogue = CUBLASLT_EPILOGUE_DGELU;
    p.alignments[3] = alignment_of(before);
  }
  Planned& planned = kept_plan(p, [&](const Product& product) { return plan(stream, product); });
  if (before) set(planned.description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, before);
  if (options.bias) set(planned.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned_bias(stream, options.bias));
  planned.run(stream, a.data, b.data, c.data, p.write);
}

}  // namespace

void matmul(CudaStream& stream, ConstView a, ConstView b, View c, const MatmulOptions& options) {
  if (options.part.whole) return matmul(stream, a, b, c, without_parts(stream, a, c, options));
  multiply(stream, a, b, c, options);
}

void matmul_activate_backward(CudaStream& stream, ConstView a, ConstView b, Activation f, ConstView before, View c,
                              const MatmulOptions& options) {
  check_activate_backward(a, before, c, options);
  if (takes_slope(f, a, b, before, c)) return multiply(stream, a, b, c, options, before.data);
  matmul(stream, a, b, c, options);
  activate_backward(stream, f, before, c, c);
}

}  // namespace zeepo
