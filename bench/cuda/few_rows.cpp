// Products of few rows beside a plain copy of the device's memory: GB/s of weights read, of Qwen2.5-3B's layers. Each
// weight is a part of one that is larger than the cache; the layers of a block follow one another, as when text is
// generated, one after another and each started while the one before still runs. Then attention of one position.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/base/rng.h"
#include "zeepo/device/copy.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/decode_attention.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/kernels/few_row_product.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo {
namespace {

constexpr int kRuns = 7;
constexpr std::int64_t kHidden = 2048, kFfn = 11008, kQkv = 2560, kBlocks = 12;

struct Layer {
  const char* name;
  std::int64_t n, k;
  bool norm, swiglu, sum;
};
constexpr std::array kLayers{
    Layer{"qkv", kQkv, kHidden, true, false, false}, Layer{"attention out", kHidden, kHidden, false, false, true},
    Layer{"gate, up", kFfn, kHidden, true, true, false}, Layer{"down", kHidden, kFfn, false, false, true}};

std::int64_t elements_of(const Layer& layer) { return layer.n * layer.k * (layer.swiglu ? 2 : 1); }

std::size_t bytes_of(const Layer& layer, CodedType coded) {
  return coded == CodedType::same ? static_cast<std::size_t>(elements_of(layer)) * 2
                                  : coded_bytes(coded, elements_of(layer));
}

// Seconds of f, the median.
double time(CudaStream& stream, const std::function<void()>& f) {
  std::vector<double> seconds;
  cudaEvent_t begin{}, end{};
  cuda_check(cudaEventCreate(&begin));
  cuda_check(cudaEventCreate(&end));
  f();
  for (int i = 0; i < kRuns; ++i) {
    cuda_check(cudaEventRecord(begin, stream.handle()));
    f();
    cuda_check(cudaEventRecord(end, stream.handle()));
    stream.synchronize();
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, begin, end));
    seconds.push_back(ms / 1e3);
  }
  (void)cudaEventDestroy(begin);
  (void)cudaEventDestroy(end);
  std::ranges::sort(seconds);
  return seconds[kRuns / 2];
}

// Random bf16 numbers, small; as codes any bytes are a weight.
MemoryRange random_memory(CudaStream& stream, std::size_t bytes) {
  MemoryRange memory = device_memory(stream, "device", bytes);
  std::vector<bf16> values(std::size_t{1} << 22);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = from_float<bf16>(0.05f * (uniform({1}, i) - 0.5f));
  for (std::size_t at = 0; at < bytes; at += values.size() * sizeof(bf16))
    copy_to_device(stream, values.data(), memory.data() + at, std::min(values.size() * sizeof(bf16), bytes - at));
  stream.synchronize();
  return memory;
}

class Model {
 public:
  Model(CudaStream& stream, CodedType coded) : stream_(stream), coded_(coded) {
    std::size_t block = 0;
    for (const Layer& layer : kLayers) block += bytes_of(layer, coded);
    block_bytes_ = (block + 15) / 16 * 16;
    weights_ = random_memory(stream, block_bytes_ * kBlocks);
    rows_ = random_memory(stream, std::size_t{8} << 20);
  }

  FewRowProduct op(std::int64_t block, std::size_t layer, std::int64_t m) const {
    std::byte* at = weights_.data() + static_cast<std::size_t>(block) * block_bytes_;
    for (std::size_t i = 0; i < layer; ++i) at += bytes_of(kLayers[i], coded_);
    const Layer& l = kLayers[layer];
    FewRowProduct op{.x = row(0, m, l.k), .y = row(1, m, l.n)};
    if (coded_ == CodedType::same)
      op.weight = {at, DType::bf16, {l.swiglu ? 2 * l.n : l.n, l.k}};
    else
      op.codes = at, op.coded = coded_;
    if (l.norm) op.norm = row(2, 1, l.k), op.eps = 1e-6f;
    op.swiglu = l.swiglu;
    if (l.sum) op.sum = row(3, m, l.n);
    return op;
  }
  double bytes(std::size_t layer) const { return static_cast<double>(bytes_of(kLayers[layer], coded_)) * kBlocks; }

  // GB/s of one layer, of every block.
  double rate(std::size_t layer, std::int64_t m) const {
    const double seconds = time(stream_, [&] {
      for (std::int64_t b = 0; b < kBlocks; ++b) multiply(stream_, op(b, layer, m));
    });
    return bytes(layer) / seconds / 1e9;
  }
  double rate_of_blocks(std::int64_t m) const {
    double all = 0;
    for (std::size_t i = 0; i < kLayers.size(); ++i) all += bytes(i);
    const double seconds = time(stream_, [&] {
      for (std::int64_t b = 0; b < kBlocks; ++b)
        for (std::size_t i = 0; i < kLayers.size(); ++i) multiply(stream_, op(b, i, m));
    });
    return all / seconds / 1e9;
  }
  // By cuBLASLt.
  double rate_of_matmul(std::size_t layer, std::int64_t m) const {
    const double seconds = time(stream_, [&] {
      for (std::int64_t b = 0; b < kBlocks; ++b) {
        const FewRowProduct one = op(b, layer, m);
        const View y{one.y.data, DType::bf16, {m, one.weight.shape[0]}};
        matmul(stream_, one.x, one.weight, y, {.b = Transpose::yes});
      }
    });
    return bytes(layer) / seconds / 1e9;
  }

 private:
  View row(std::size_t i, std::int64_t m, std::int64_t width) const {
    return {rows_.data() + (i << 21), DType::bf16, {m, width}};
  }

  CudaStream& stream_;
  CodedType coded_;
  std::size_t block_bytes_;
  MemoryRange weights_, rows_;
};

void copy_rate(CudaStream& stream) {
  const std::int64_t n = std::int64_t{1} << 30;
  const MemoryRange from = random_memory(stream, 2 * n), to = device_memory(stream, "device", 2 * n);
  const double seconds = time(stream, [&] {
    copy(stream, {from.data(), DType::bf16, {n}}, {to.data(), DType::bf16, {n}});
  });
  fmt::print("a copy: {:.0f} GB/s, read and written\n", 4.0 * static_cast<double>(n) / seconds / 1e9);
}

void products(CudaStream& stream, CodedType coded) {
  const Model model(stream, coded);
  fmt::print("\n{}: GB/s of weights\n{:>5}", coded == CodedType::same ? "bf16" : name_of(coded), "rows");
  for (const Layer& layer : kLayers) fmt::print("{:>15}", layer.name);
  fmt::print("{:>15}{:>15}\n", "all in turn", "early starts");
  for (const std::int64_t m : {1, 2, 4, 8}) {
    fmt::print("{:>5}", m);
    for (std::size_t i = 0; i < kLayers.size(); ++i) fmt::print("{:>15.0f}", model.rate(i, m));
    fmt::print("{:>15.0f}", model.rate_of_blocks(m));
    stream.set_weights_stay(true);
    fmt::print("{:>15.0f}\n", model.rate_of_blocks(m));
    stream.set_weights_stay(false);
    if (coded != CodedType::same) continue;
    fmt::print("  Lt ");
    for (std::size_t i = 0; i < kLayers.size(); ++i) fmt::print("{:>15.0f}", model.rate_of_matmul(i, m));
    fmt::print("\n");
  }
}

void attention(CudaStream& stream) {
  constexpr std::int64_t kHeads = 16, kKeyHeads = 2, kDim = 128, kLayersOf = 36;
  fmt::print("\nattention of one position, {} query heads, {} key heads of {}\n", kHeads, kKeyHeads, kDim);
  const MemoryRange qkv = random_memory(stream, 1 << 16), out = random_memory(stream, 1 << 16);
  for (const std::int64_t length : {64, 1024, 8192, 32768}) {
    const std::size_t bytes = static_cast<std::size_t>(length * kKeyHeads * kDim) * 2;
    const MemoryRange cache = random_memory(stream, 2 * kLayersOf * bytes);
    const auto part = [&](const MemoryRange& memory, std::int64_t column, std::int64_t heads) {
      return heads_of(View{memory.data(), DType::bf16, {1, 1, (kHeads + 2 * kKeyHeads) * kDim}}, column, heads, kDim);
    };
    const double seconds = time(stream, [&] {
      for (std::int64_t layer = 0; layer < kLayersOf; ++layer) {
        const auto cached = [&](std::int64_t i) {
          return heads_of(View{cache.data() + static_cast<std::size_t>(2 * layer + i) * bytes,
                               DType::bf16,
                               {1, length, kKeyHeads * kDim}},
                          0, kKeyHeads, kDim);
        };
        attend(stream, {.q = part(qkv, 0, kHeads),
                        .k = part(qkv, kHeads * kDim, kKeyHeads),
                        .v = part(qkv, (kHeads + kKeyHeads) * kDim, kKeyHeads),
                        .keys = cached(0),
                        .values = cached(1),
                        .out = part(out, 0, kHeads),
                        .options = {.scale = 0.1f}});
      }
    });
    fmt::print("{:>6} keys: {:6.1f} us a layer, {:5.0f} GB/s\n", length, seconds / kLayersOf * 1e6,
               2.0 * static_cast<double>(bytes * kLayersOf) / seconds / 1e9);
  }
}

void run() {
  if (cuda_devices() == 0) throw Error("bench: no GPU that CUDA can use");
  CudaStream stream;
  copy_rate(stream);
  for (const CodedType coded : {CodedType::same, CodedType::int8, CodedType::int4}) products(stream, coded);
  attention(stream);
}

}  // namespace
}  // namespace zeepo

int main() {
  try {
    zeepo::run();
  } catch (const zeepo::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
