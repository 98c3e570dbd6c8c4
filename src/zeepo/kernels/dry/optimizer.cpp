#include "zeepo/kernels/optimizer.h"

#include "zeepo/kernels/dry/dry_kernels.h"
#include "zeepo/kernels/gradient_norm.h"

namespace zeepo {
namespace {

using namespace dry;

// The host steps at its own rate, which a probe has measured; a GPU as fast as its memory.
void step(DryStream& s, const Weights& weights, ConstView grad, double state_bytes) {
  if (s.plays() == Backend::cpu)
    return s.time()->work_on_host(static_cast<double>(grad.elements()) / s.time()->rates().host_steps);
  const double changed = bytes_of(weights.param) + bytes_of(weights.remainder) + state_bytes;
  s.time()->compute(seconds_to_move(s, bytes_of(grad) + 2 * changed));
}

}  // namespace

void write_master(DryStream& s, ConstView fp32, Weights to) { moves(s, fp32, to.param); }
void read_master(DryStream& s, Weights from, View fp32) { moves(s, from.param, fp32); }

void adam(DryStream& s, Weights weights, ConstView grad, const Moment& m, const Moment& v, ConstView,
          const AdamOptions&, const Chance&) {
  step(s, weights, grad, bytes_of(m.values) + bytes_of(v.values));
}
void sgd(DryStream& s, Weights weights, ConstView grad, View b, ConstView, const SgdOptions&, const Chance&) {
  step(s, weights, grad, bytes_of(b));
}

void sum_squares(DryStream& s, ConstView x, std::int64_t, View nodes) { moves(s, x, nodes); }
void merge_norm_nodes(DryStream& s, ConstView nodes, ConstView, View blocks) { moves(s, nodes, blocks); }
void finish_norm(DryStream& s, ConstView partials, float, float, View control) { moves(s, partials, control); }

}  // namespace zeepo
