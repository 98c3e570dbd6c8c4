// The Adam step over GPT-2's 124M parameters, beside what this machine's memory gives in the same run.
//
// The measures: a[i] += s·b[i] over arrays of the same size, which writes what it has read, as the step does, so that
// the bytes counted are the bytes moved; and STREAM's triad, a[i] = b[i] + s·c[i], with the lines that the processor
// fetches before it writes them counted. The step is as good as it can be when its GB/s are the same.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <thread>

#include "zeepo/kernels/elementwise.h"
#include "zeepo/kernels/optimizer.h"

namespace zeepo {
namespace {

constexpr std::int64_t kParameters = 124'439'808;

struct Free {
  void operator()(void* p) const { std::free(p); }
};
class Memory {
 public:
  Memory(CpuStream& stream, DType dtype, float value) {
    view_ = {nullptr, dtype, {kParameters}};
    data_.reset(std::aligned_alloc(256, (view_.bytes() + 255) / 256 * 256));
    if (!data_) throw std::bad_alloc();
    view_.data = data_.get();
    fill(stream, view_, value);
  }
  View view() const { return view_; }

 private:
  std::unique_ptr<void, Free> data_;
  View view_;
};

struct Machine {
  ThreadPool pool{static_cast<int>(std::thread::hardware_concurrency())};
  CpuStream stream{pool};
};

void report(benchmark::State& state, double bytes_per_element) {
  const double moved = bytes_per_element * static_cast<double>(kParameters) * static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(moved / 1e9, benchmark::Counter::kIsRate);
}

void triad(benchmark::State& state) {
  Machine machine;
  const Memory a(machine.stream, DType::f32, 1), b(machine.stream, DType::f32, 2);
  for (auto _ : state)
    machine.pool.for_range(kParameters, 1 << 15, [&](std::int64_t begin, std::int64_t end) {
      float* to = a.view().as<float>();
      const float* from = b.view().as<float>();
      for (auto i = begin; i < end; ++i) to[i] += 1e-3f * from[i];
    });
  report(state, 12);
}

void stream_triad(benchmark::State& state) {
  Machine machine;
  const Memory a(machine.stream, DType::f32, 1), b(machine.stream, DType::f32, 2), c(machine.stream, DType::f32, 3);
  for (auto _ : state)
    machine.pool.for_range(kParameters, 1 << 15, [&](std::int64_t begin, std::int64_t end) {
      float* __restrict to = a.view().as<float>();
      const float* __restrict from = b.view().as<float>();
      const float* __restrict other = c.view().as<float>();
      for (auto i = begin; i < end; ++i) to[i] = from[i] + 1e-3f * other[i];
    });
  report(state, 16);
}

void step(benchmark::State& state, DType dtype, DType moments) {
  Machine machine;
  CpuStream& s = machine.stream;
  const Memory param(s, dtype, 1), grad(s, dtype, 0.5f), m(s, moments, 0), v(s, moments, 0);
  const Memory exponents(s, DType::u8, 0), more_exponents(s, DType::u8, 0);
  const auto moment = [&](const Memory& values, const Memory& shared) {
    return Moment(values.view(), moments == DType::u8 ? shared.view() : View{});
  };
  const Memory low(s, dtype == DType::bf16 ? DType::i16 : DType::f32, 0);
  const Weights weights{param.view(), dtype == DType::f32 ? View{} : low.view()};
  StepControl control{.norm = 1, .grad_factor = 0.5f, .skip = 0};
  const AdamOptions options{.lr = 1e-4f,
                            .beta1 = 0.9f,
                            .beta2 = 0.95f,
                            .eps = 1e-8f,
                            .weight_decay = 0.1f,
                            .correction1 = 0.1f,
                            .correction2 = 0.05f,
                            .decoupled = true};
  for (auto _ : state)
    adam(s, weights, grad.view(), moment(m, exponents), moment(v, more_exponents), {&control, DType::f32, {3}},
         options);
  // Read and written: the moments, the weights. Read: the gradient. fp16 does not read the parameter itself.
  report(state, (dtype == DType::bf16 ? 10 : 12) + 4 * static_cast<double>(size_of(moments)));
}

void norm(benchmark::State& state, DType dtype) {
  Machine machine;
  const Memory grad(machine.stream, dtype, 0.5f), partials(machine.stream, DType::f32, 0);
  for (auto _ : state) sum_squares(machine.stream, grad.view(), 0, partials.view());
  report(state, static_cast<double>(size_of(dtype)));
}

BENCHMARK(triad)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(stream_triad)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(step, fp32, DType::f32, DType::f32)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(step, bf16, DType::bf16, DType::f32)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(step, fp16, DType::f16, DType::f32)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(step, bf16_moments_bf16, DType::bf16, DType::bf16)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(step, bf16_moments_8bit, DType::bf16, DType::u8)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(norm, fp32, DType::f32)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(norm, bf16, DType::bf16)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace zeepo

BENCHMARK_MAIN();
