// What kernels of a dry stream with a clock take: as long as their arithmetic or the bytes that they read and write,
// whichever is more.
#pragma once

#include <algorithm>

#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"
#include "zeepo/kernels/heads.h"

namespace zeepo::dry {

// Views of a dry pass have no data. An empty one counts as one element.
inline double bytes_of(const ConstView& view) {
  return static_cast<double>(view.elements()) * static_cast<double>(size_of(view.dtype));
}
inline double bytes_of(const View& view) { return bytes_of(ConstView(view)); }
inline double elements_of(const ConstHeads& x) {
  return static_cast<double>(x.batch) * static_cast<double>(x.rows) * static_cast<double>(x.heads * x.head_dim);
}
inline double bytes_of(const ConstHeads& x) { return elements_of(x) * static_cast<double>(size_of(x.dtype)); }
inline double bytes_of(const Heads& x) { return bytes_of(ConstHeads(x)); }

inline double seconds_to_move(const DryStream& s, double bytes) { return bytes / s.time()->rates().device_memory; }

// Reads and writes these.
template <class... Views>
void moves(DryStream& s, const Views&... views) {
  s.time()->compute(seconds_to_move(s, (bytes_of(views) + ... + 0.0)));
}

inline void computes(DryStream& s, double operations, double rate, double bytes) {
  s.time()->compute(std::max(operations / rate, seconds_to_move(s, bytes)));
}

}  // namespace zeepo::dry
