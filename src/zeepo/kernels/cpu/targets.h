// Which instruction sets the SIMD kernels are compiled for: AVX-512, AVX2, and the compiler's own baseline. Include it
// before any Highway header.
//
// A machine without AVX2 cannot train anything large, so SSE only costs compile time. Highway's plain scalar target
// does not fuse its MulAdd: where bits must agree between targets, use std::fma there.
#pragma once

#ifdef HWY_DISABLED_TARGETS
#error "zeepo/kernels/cpu/targets.h must come before Highway's headers"
#endif
#ifndef ZEEPO_ALSO_DISABLED_TARGETS  // of a build with sanitizers
#define ZEEPO_ALSO_DISABLED_TARGETS 0
#endif
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | ZEEPO_ALSO_DISABLED_TARGETS)
