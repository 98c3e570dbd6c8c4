// Each CUDA kernel beside the GPU's limits, taken in the same run: kernels that move memory beside a plain copy of the
// device's memory, matrix products beside the fastest large one. Shapes are those of Qwen2.5-3B on 8192 tokens, rows
// raised where the tensors would stay in the cache.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/base/rng.h"
#include "zeepo/device/copy.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/copy_heads.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/kernels/embedding.h"
#include "zeepo/kernels/matmul.h"
#include "zeepo/kernels/norm.h"
#include "zeepo/kernels/optimizer.h"
#include "zeepo/kernels/rotary.h"
#include "zeepo/kernels/softmax.h"

namespace zeepo {
namespace {

constexpr int kRuns = 12;

// Memory for one kernel's operands, all at once; filled with random numbers, never zeros.
class Operands {
 public:
  explicit Operands(CudaStream& stream) : stream_(stream) {}

  View take(DType dtype, Shape shape) {
    const View view{nullptr, dtype, shape};
    memory_.push_back(device_memory(stream_, "device", view.bytes()));
    View made{memory_.back().data(), dtype, shape};
    fill_random(made);
    return made;
  }
  View ids(std::int64_t count, std::int64_t vocabulary) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<std::int32_t>(uniform({3}, i) * uniform({4}, i) * static_cast<float>(vocabulary));
    memory_.push_back(device_memory(stream_, "device", values.size() * sizeof(std::int32_t)));
    copy_to_device(stream_, values.data(), memory_.back().data(), values.size() * sizeof(std::int32_t));
    stream_.synchronize();
    return {memory_.back().data(), DType::i32, {count}};
  }

 private:
  // A million normal numbers, again and again; remainders of weights are zeros.
  void fill_random(View view) {
    if (view.dtype == DType::i16) return fill(stream_, {view.data, DType::bf16, view.shape}, 0);
    constexpr std::int64_t kPiece = 1 << 20;
    std::vector<float> values(static_cast<std::size_t>(std::min(kPiece, view.elements())));
    fill_normal({++key_}, 0, values);
    const auto bytes = values.size() * sizeof(float);
    const MemoryRange staged = device_memory(stream_, "device", bytes);
    copy_to_device(stream_, values.data(), staged.data(), bytes);
    for (std::int64_t begin = 0; begin < view.elements(); begin += kPiece) {
      const Shape piece{std::min(kPiece, view.elements() - begin)};
      auto* at = view.as<std::byte>() + static_cast<std::size_t>(begin) * size_of(view.dtype);
      copy(stream_, {staged.data(), DType::f32, piece}, {at, view.dtype, piece});
    }
    stream_.synchronize();
  }

  CudaStream& stream_;
  std::deque<MemoryRange> memory_;
  std::uint64_t key_ = 0;
};

class Timer {
 public:
  explicit Timer(CudaStream& stream) : stream_(stream) {
    cuda_check(cudaEventCreate(&begin_));
    cuda_check(cudaEventCreate(&end_));
  }
  ~Timer() {
    (void)cudaEventDestroy(begin_);
    (void)cudaEventDestroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // The median of several runs, after two that warm up.
  double seconds(const std::function<void()>& run) {
    std::vector<float> times;
    for (int i = 0; i < kRuns + 2; ++i) {
      float milliseconds = 0;
      cuda_check(cudaEventRecord(begin_, stream_.handle()));
      run();
      cuda_check(cudaEventRecord(end_, stream_.handle()));
      stream_.synchronize();
      cuda_check(cudaEventElapsedTime(&milliseconds, begin_, end_));
      if (i >= 2) times.push_back(milliseconds);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1e-3;
  }

 private:
  CudaStream& stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

class Report {
 public:
  explicit Report(CudaStream& stream) : stream_(stream), timer_(stream) {
    Operands room(stream);
    const View x = room.take(DType::bf16, {1 << 30}), y = room.take(DType::bf16, {1 << 30});
    copy_rate_ = 2 * static_cast<double>(x.bytes()) / timer_.seconds([&] { copy(stream_, x, y); });
    fmt::print("{:<44} {:8.0f} GB/s\n", "copy on the device, read and written", copy_rate_ * 1e-9);
  }

  // `bytes`: the fewest that must be read and written.
  void memory(const std::string& name, std::int64_t bytes, const std::function<void()>& run) {
    const double rate = static_cast<double>(bytes) / timer_.seconds(run);
    fmt::print("{:<44} {:8.0f} GB/s  {:4.0f}% of the copy\n", name, rate * 1e-9, 100 * rate / copy_rate_);
    std::fflush(stdout);
  }
  void product(const std::string& name, std::int64_t m, std::int64_t n, std::int64_t k, MatmulOptions options) {
    Operands room(stream_);
    const View a = room.take(DType::bf16, options.a == Transpose::yes ? Shape{k, m} : Shape{m, k});
    const View b = room.take(DType::bf16, options.b == Transpose::yes ? Shape{n, k} : Shape{k, n});
    const View c = room.take(DType::bf16, {m, n});
    const double rate = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) /
                        timer_.seconds([&] { matmul(stream_, a, b, c, options); });
    fastest_ = std::max(fastest_, rate);
    fmt::print("{:<44} {:8.0f} TFLOP/s  {:4.0f}% of the fastest so far\n", name, rate * 1e-12, 100 * rate / fastest_);
    std::fflush(stdout);
  }

 private:
  CudaStream& stream_;
  Timer timer_;
  double copy_rate_ = 0, fastest_ = 0;
};

constexpr std::int64_t kTokens = 8192, kManyRows = 65536, kHidden = 2048, kFfn = 11008, kVocabulary = 151936;

void elementwise(CudaStream& s, Report& report) {
  Operands room(s);
  const std::int64_t n = std::int64_t{1} << 28;
  const View a = room.take(DType::bf16, {n}), b = room.take(DType::bf16, {n}), wide = room.take(DType::f32, {n});
  report.memory("add bf16", 6 * n, [&] { add(s, a, b, a); });
  report.memory("add fp32 += bf16", 10 * n, [&] { add(s, wide, b, wide); });
  report.memory("add fp32 += bf16, rounded", 10 * n, [&] { add_rounded(s, wide, b, wide); });
  report.memory("copy fp32 to bf16", 6 * n, [&] { copy(s, wide, a); });
  report.memory("fill bf16", 2 * n, [&] { fill(s, a, 1); });
  report.memory("gelu bf16", 4 * n, [&] { activate(s, Activation::gelu_tanh, b, a); });
  report.memory("dropout bf16", 4 * n, [&] { dropout(s, b, 0.1f, {1}, a); });
  const View partials = room.take(DType::f32, {norm_blocks(n)});
  report.memory("sum_squares bf16", 2 * n, [&] { sum_squares(s, a, 0, partials); });
  report.memory("sum_squares fp32", 4 * n, [&] { sum_squares(s, wide, 0, partials); });
  const View rows{a.data, DType::bf16, {n / 16384, 16384}}, sums = room.take(DType::bf16, {16384});
  report.memory("sum_rows bf16 (16384, 16384)", 2 * n, [&] { sum_rows(s, rows, sums, Write::overwrite); });
}

void block(CudaStream& s, Report& report) {
  Operands room(s);
  const View x2 = room.take(DType::bf16, {kTokens, 2 * kFfn}), y = room.take(DType::bf16, {kTokens, kFfn});
  const View dx2 = room.take(DType::bf16, {kTokens, 2 * kFfn});
  const std::int64_t n = kTokens * kFfn;
  report.memory("swiglu (8192, 2*11008)", 6 * n, [&] { swiglu(s, x2, y); });
  report.memory("swiglu_backward", 10 * n, [&] { swiglu_backward(s, x2, y, dx2); });
  Operands rows(s);
  const Shape shape{kManyRows, kHidden};
  const View x = rows.take(DType::bf16, shape), delta = rows.take(DType::bf16, shape);
  const View sum = rows.take(DType::bf16, shape), out = rows.take(DType::bf16, shape);
  const View weight = rows.take(DType::bf16, {kHidden}), dweight = rows.take(DType::bf16, {kHidden});
  const View mean = rows.take(DType::f32, {kManyRows}), rstd = rows.take(DType::f32, {kManyRows});
  const std::int64_t m = kManyRows * kHidden;
  report.memory("rms_norm (65536, 2048)", 4 * m, [&] { rms_norm(s, {x, {}, weight, 1e-6f, {}, out, rstd}); });
  report.memory("rms_norm + residual", 8 * m, [&] { rms_norm(s, {x, delta, weight, 1e-6f, sum, out, rstd}); });
  report.memory("rms_norm_backward", 6 * m, [&] {
    rms_norm_backward(s, {delta, x, weight, rstd, out, dweight, Write::overwrite, Write::add});
  });
  report.memory("rms_norm_backward, dx added", 8 * m, [&] {
    rms_norm_backward(s, {delta, x, weight, rstd, out, dweight, Write::add, Write::add});
  });
  report.memory("layer_norm (65536, 2048)", 4 * m, [&] {
    layer_norm(s, {x, {}, weight, weight, 1e-6f, {}, out, mean, rstd});
  });
  report.memory("layer_norm_backward", 6 * m, [&] {
    layer_norm_backward(s, {delta, x, weight, mean, rstd, out, dweight, {}, Write::overwrite, Write::add, Write::add});
  });
  const View small{x.data, DType::bf16, {kTokens, kHidden}}, small_dy{delta.data, DType::bf16, {kTokens, kHidden}};
  const View small_out{out.data, DType::bf16, {kTokens, kHidden}};
  report.memory("rms_norm_backward (8192, 2048), in cache", 6 * kTokens * kHidden, [&] {
    rms_norm_backward(s, {small_dy, small, weight, rstd, small_out, dweight, Write::overwrite, Write::add});
  });
  const View heads{x.data, DType::bf16, {1, kManyRows, kHidden}};
  const View cosines = rows.take(DType::f32, {kManyRows, 64}), sines = rows.take(DType::f32, {kManyRows, 64});
  report.memory("rotate 16 heads of 128", 4 * m + 8 * kManyRows * 64,
                [&] { rotate(s, heads_of(heads, 0, 16, 128), cosines, sines, 0, Turn::forward); });
  const View other{out.data, DType::bf16, {1, kManyRows, kHidden}}, head_weight = rows.take(DType::bf16, {128});
  const View head_rstd = rows.take(DType::f32, {kManyRows, 16});
  report.memory("rms_norm_heads 16 heads of 128", 4 * m, [&] {
    rms_norm_heads(s, heads_of(ConstView(heads), 0, 16, 128), head_weight, 1e-6f, heads_of(other, 0, 16, 128),
                   head_rstd);
  });
  report.memory("rms_norm_heads_backward", 6 * m, [&] {
    const View dy{delta.data, DType::bf16, {1, kManyRows, kHidden}};
    rms_norm_heads_backward(s, heads_of(ConstView(dy), 0, 16, 128), heads_of(ConstView(heads), 0, 16, 128), head_weight,
                            head_rstd, heads_of(other, 0, 16, 128), head_weight, Write::overwrite);
  });
}

void ends(CudaStream& s, Report& report) {
  Operands room(s);
  const std::int64_t rows = 1024;
  const View logits = room.take(DType::bf16, {rows, kVocabulary}), losses = room.take(DType::f32, {rows});
  const View targets = room.ids(rows, kVocabulary);
  report.memory("cross_entropy in place (1024, 151936)", 4 * rows * kVocabulary,
                [&] { cross_entropy(s, logits, targets, losses, logits, 1); });
  const View table = room.take(DType::bf16, {kVocabulary, kHidden}), y = room.take(DType::bf16, {kTokens, kHidden});
  const View ids = room.ids(kTokens, kVocabulary);
  report.memory("embed (8192 of 151936, 2048)", 4 * kTokens * kHidden, [&] { embed(s, ids, table, y); });
  report.memory("embed_backward, added", 6 * kTokens * kHidden, [&] { embed_backward(s, ids, y, table, Write::add); });
  report.memory("embed_backward, overwritten", 2 * kVocabulary * kHidden + 4 * kTokens * kHidden,
                [&] { embed_backward(s, ids, y, table, Write::overwrite); });
}

void optimizer(CudaStream& s, Report& report) {
  Operands room(s);
  const std::int64_t n = std::int64_t{1} << 27;
  const View param = room.take(DType::bf16, {n}), low = room.take(DType::i16, {n}), grad = room.take(DType::bf16, {n});
  const View m = room.take(DType::f32, {n}), v = room.take(DType::f32, {n}), control = room.take(DType::f32, {3});
  fill(s, v, 0.5f);
  fill(s, {control.data, DType::f32, {2}}, 1);
  fill(s, {control.as<float>() + 2, DType::f32, {1}}, 0);
  const AdamOptions options{1e-5f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, true};
  report.memory("adam bf16 + int16, bf16 gradients", 26 * n, [&] {
    adam(s, {param, low}, grad, m, v, control, options);
  });
  const View wide = room.take(DType::f32, {n});
  report.memory("adam fp32, fp32 gradients", 28 * n, [&] { adam(s, {wide, {}}, wide, m, v, control, options); });
  report.memory("read_master bf16 + int16", 8 * n, [&] { read_master(s, {param, low}, wide); });
}

void products(Report& report) {
  const MatmulOptions forward{.b = Transpose::yes}, dx{}, dw{.a = Transpose::yes, .write = Write::add};
  report.product("8192 x 8192 x 8192", 8192, 8192, 8192, forward);
  const struct {
    const char* name;
    std::int64_t in, out;
  } layers[] = {{"qkv", kHidden, 2560},
                {"attention out", kHidden, kHidden},
                {"gate, up", kHidden, 2 * kFfn},
                {"down", kFfn, kHidden},
                {"head", kHidden, kVocabulary}};
  for (const auto& [name, in, out] : layers) {
    report.product(fmt::format("{} forward", name), kTokens, out, in, forward);
    report.product(fmt::format("{} input gradient", name), kTokens, in, out, dx);
    report.product(fmt::format("{} weight gradient, added", name), out, in, kTokens, dw);
  }
}

void run() {
  if (cuda_devices() == 0) throw Error("bench: no GPU that CUDA can use");
  CudaStream stream;
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, stream.device()));
  fmt::print("{}, {} multiprocessors\n", properties.name, properties.multiProcessorCount);
  Report report(stream);
  elementwise(stream, report);
  block(stream, report);
  ends(stream, report);
  optimizer(stream, report);
  products(report);
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
