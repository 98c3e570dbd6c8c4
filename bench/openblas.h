// One big fp32 product by OpenBLAS with its own threads: the peer that kernels are measured against in the same run.
#pragma once

#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "zeepo/base/thread_pool.h"

namespace zeepo {

// All cores of the machine, for the kernels and for the peer.
inline ThreadPool& pool() {
  static ThreadPool threads(choose_threads(0));
  return threads;
}

template <class F>
double seconds_of(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Flops per second of the peer: 2048 × 2048 × 2048, the best of several. Measured once.
inline double peer_flops() {
  static const double flops = [] {
    constexpr int n = 2048;
    const std::vector<float> a(n * n, 0.5f), b(n * n, 0.25f);
    std::vector<float> c(n * n);
    openblas_set_num_threads(pool().threads());
    double best = 1e9;
    for (int i = 0; i < 12; ++i)
      best = std::min(best, seconds_of([&] {
                        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1, a.data(), n, b.data(), n, 0,
                                    c.data(), n);
                      }));
    openblas_set_num_threads(1);
    return 2.0 * n * n * n / best;
  }();
  return flops;
}

}  // namespace zeepo
