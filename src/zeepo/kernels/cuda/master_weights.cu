#include "zeepo/kernels/cuda/master_weights.h"

namespace zeepo {
namespace {

using namespace cuda;

template <class W>
struct WriteMaster {
  const float* fp32;
  W weights;

  __device__ bool wanted() const { return true; }
  template <int N>
  __device__ void apply(std::int64_t i) const {
    float x[N];
    load<N>(fp32 + i, x);
    weights.put(x, i);
  }
};

template <class W>
struct ReadMaster {
  W weights;
  float* fp32;

  __device__ bool wanted() const { return true; }
  template <int N>
  __device__ void apply(std::int64_t i) const {
    float x[N];
    weights.get(i, x);
    store<N>(x, fp32 + i);
  }
};

}  // namespace

void write_master(CudaStream& stream, ConstView fp32, Weights to) {
  with_weights(to, [&](auto weights) {
    run_step(stream, WriteMaster<decltype(weights)>{fp32.as<float>(), weights}, fp32.elements(),
             packable(fp32.data) && weights.packable());
  });
}

void read_master(CudaStream& stream, Weights from, View fp32) {
  with_weights(from, [&](auto weights) {
    run_step(stream, ReadMaster<decltype(weights)>{weights, fp32.as<float>()}, fp32.elements(),
             packable(static_cast<const void*>(fp32.data)) && weights.packable());
  });
}

}  // namespace zeepo
