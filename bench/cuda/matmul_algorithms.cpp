// What each of cuBLASLt's candidates for the products of a training step gives, best first by its own model: TFLOP/s,
// and whether the bits of the result are those of the first. `choose` in kernels/cuda/matmul.cpp takes one. Shapes are
// those of Qwen2.5, and of GPT-2's feed forward with and without its activation; an argument is a part of the names of
// the products to try.
#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "zeepo/base/rng.h"
#include "zeepo/device/copy.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/elementwise.h"

namespace zeepo {
namespace {

constexpr int kCandidates = 16;
constexpr float kMillisecondsEach = 20;  // to settle, and again to be timed: rates fall under load that lasts

struct Product {
  std::string name;
  std::int64_t m, n, k;
  bool ta, tb;  // a is stored (k, m), b is stored (n, k)
  bool add = false;
  bool wide = false;  // c is fp32
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};

template <class T>
T config(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written) !=
      CUBLAS_STATUS_SUCCESS)
    return T(-1);
  return value;
}

void fill_random(CudaStream& stream, std::byte* data, std::int64_t elements, float deviation, std::uint64_t key) {
  constexpr std::int64_t kPiece = 1 << 20;
  static std::vector<float> values(kPiece);
  fill_normal({key}, 0, values);
  for (float& v : values) v *= deviation;
  const MemoryRange staged = device_memory(stream, "device", kPiece * 4);
  copy_to_device(stream, values.data(), staged.data(), kPiece * 4);
  for (std::int64_t begin = 0; begin < elements; begin += kPiece) {
    const Shape piece{std::min(kPiece, elements - begin)};
    copy(stream, {staged.data(), DType::f32, piece}, {data + begin * 2, DType::bf16, piece});
  }
  stream.synchronize();
}

void compare(CudaStream& stream, const MemoryRange& a, const MemoryRange& b, const MemoryRange& c, const Product& p) {
  cublasLtMatmulDesc_t description = nullptr;
  cuda_check(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t first = p.tb ? CUBLAS_OP_T : CUBLAS_OP_N, second = p.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
  cuda_check(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
  cuda_check(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
  if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      cuda_check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value));
    };
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
    if (p.epilogue & CUBLASLT_EPILOGUE_BIAS) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, b.data());
    if (p.epilogue != CUBLASLT_EPILOGUE_BIAS) {  // what goes through the activation, in the other half of c
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, c.data() + c.bytes() / 2);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
    }
  }
  const auto layout = [](std::int64_t rows, std::int64_t columns, cudaDataType_t type = CUDA_R_16BF) {
    cublasLtMatrixLayout_t made = nullptr;
    cuda_check(cublasLtMatrixLayoutCreate(&made, type, columns, rows, columns));
    return made;
  };
  const auto la = layout(p.ta ? p.k : p.m, p.ta ? p.m : p.k), lb = layout(p.tb ? p.n : p.k, p.tb ? p.k : p.n);
  const auto lc = layout(p.m, p.n, p.wide ? CUDA_R_32F : CUDA_R_16BF);
  cublasLtMatmulPreference_t preference = nullptr;
  cuda_check(cublasLtMatmulPreferenceCreate(&preference));
  const std::size_t most = CudaStream::kWorkspaceBytes;
  cuda_check(
      cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  cuda_check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                                  sizeof reductions));
  std::vector<cublasLtMatmulHeuristicResult_t> found(kCandidates);
  int count = 0;
  cuda_check(cublasLtMatmulAlgoGetHeuristic(stream.blas(), description, lb, la, lc, lc, preference, kCandidates,
                                            found.data(), &count));
  const float one = 1, before = p.add ? 1 : 0;
  cudaEvent_t begin = nullptr, end = nullptr;
  cuda_check(cudaEventCreate(&begin));
  cuda_check(cudaEventCreate(&end));
  const auto run = [&](int i) {
    return cublasLtMatmul(stream.blas(), description, &one, b.data(), lb, a.data(), la, &before, c.data(), lc, c.data(),
                          lc, &found[i].algo, stream.workspace(most), found[i].workspaceSize, stream.handle());
  };
  const auto milliseconds_of = [&](int i, int runs) {
    cuda_check(cudaEventRecord(begin, stream.handle()));
    for (int r = 0; r < runs; ++r) cuda_check(run(i));
    cuda_check(cudaEventRecord(end, stream.handle()));
    stream.synchronize();
    float milliseconds = 0;
    cuda_check(cudaEventElapsedTime(&milliseconds, begin, end));
    return milliseconds / static_cast<float>(runs);
  };
  std::vector<std::vector<std::uint32_t>> bits(count);
  for (int i = 0; i < count && !p.add; ++i) {
    cuda_check(run(i));
    bits[i].resize(1 << 18);
    copy_to_host(stream, c.data(), bits[i].data(), 1 << 20);
    stream.synchronize();
  }
  const int runs = static_cast<int>(std::ceil(kMillisecondsEach / milliseconds_of(0, 3)));
  std::vector<float> times(count);
  for (int turn = 0; turn < 2 * count; ++turn) {  // there and back, so that a drift cancels out
    const int i = turn < count ? turn : 2 * count - 1 - turn;
    (void)milliseconds_of(i, runs);
    times[i] += milliseconds_of(i, runs) / 2;
  }
  fmt::print("{} ({} x {} x {}{})\n", p.name, p.m, p.n, p.k,
             std::string(p.wide ? ", fp32" : "") + (p.add ? ", added" : ""));
  for (int i = 0; i < count; ++i) {
    const auto& algo = found[i].algo;
    const double flops = 2.0 * double(p.m) * double(p.n) * double(p.k);
    fmt::print(
        "  {:2} {:6.1f} TFLOP/s id {} tile {} stages {} splitk {} reduction {} swizzle {} "
        "custom {} inner {} cluster {} waves {:.2f}{}\n",
        i, flops / times[i] * 1e-9, config<int>(algo, CUBLASLT_ALGO_CONFIG_ID),
        config<int>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID), config<int>(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
        config<int>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), config<int>(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
        config<int>(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING), config<int>(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
        config<std::uint16_t>(algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
        config<std::uint16_t>(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID), found[i].wavesCount,
        p.add || bits[i] == bits[0] ? "" : "  other bits");
  }
  std::fflush(stdout);
}

void run(const std::string& wanted) {
  CudaStream stream;
  constexpr std::int64_t kT = 8192, kH = 2048, kQkv = 2560, kF = 11008, kV = 151936, kMost = kT * kV;
  const MemoryRange a = device_memory(stream, "device", kMost * 2), b = device_memory(stream, "device", kMost * 2),
                    c = device_memory(stream, "device", kMost * 4);
  fill_random(stream, a.data(), kMost, 1, 1);
  fill_random(stream, b.data(), kMost, 0.02f, 2);
  std::vector<Product> products;
  const auto layer = [&](const std::string& name, std::int64_t rows, std::int64_t in, std::int64_t out, bool add) {
    products.push_back({name + " forward", rows, out, in, false, true});
    products.push_back({name + " input gradient", rows, in, out, false, false});
    products.push_back({name + " weight gradient", out, in, rows, true, false});
    if (add) products.push_back({name + " weight gradient", out, in, rows, true, false, true});
    products.push_back({name + " weight gradient", out, in, rows, true, false, true, true});
  };
  const auto model = [&](const std::string& name, std::int64_t rows, std::int64_t h, std::int64_t qkv, std::int64_t f) {
    layer(name + " gate and up", rows, h, 2 * f, false);
    layer(name + " down", rows, f, h, false);
    layer(name + " qkv", rows, h, qkv, false);
    layer(name + " out", rows, h, h, false);
  };
  model("3B", kT, kH, kQkv, kF);
  for (const std::int64_t rows : {2816, 4096}) layer("3B head", rows, kH, kV, true);
  model("0.5B", 32768, 896, 1152, 4864);
  layer("0.5B head", 3328, 896, kV, true);
  model("7B", kT, 3584, 4608, 18944);
  model("14B", 4096, 5120, 7168, 13824);
  const auto gpt2 = [&](const std::string& name, std::int64_t rows, std::int64_t h) {
    for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS})
      products.push_back({name + (epilogue == CUBLASLT_EPILOGUE_BIAS ? " up forward" : " up forward and gelu"), rows,
                          4 * h, h, false, false, false, false, epilogue});
    for (const auto epilogue : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DGELU})
      products.push_back({name + (epilogue == CUBLASLT_EPILOGUE_DEFAULT ? " down input gradient"
                                                                        : " down input gradient and that of gelu"),
                          rows, 4 * h, h, false, true, false, false, epilogue});
  };
  gpt2("GPT-2 124M", 16384, 768);
  gpt2("GPT-2 XL", 4096, 1600);
  for (const Product& p : products)
    if (p.name.find(wanted) != std::string::npos) compare(stream, a, b, c, p);
}

}  // namespace
}  // namespace zeepo

int main(int count, char** arguments) { zeepo::run(count > 1 ? arguments[1] : ""); }
