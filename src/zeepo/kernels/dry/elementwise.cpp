#include "zeepo/kernels/elementwise.h"

#include "zeepo/kernels/coded_heads.h"
#include "zeepo/kernels/coded_weights.h"
#include "zeepo/kernels/copy_heads.h"
#include "zeepo/kernels/dry/dry_kernels.h"
#include "zeepo/kernels/embedding.h"
#include "zeepo/kernels/norm.h"
#include "zeepo/kernels/rotary.h"
#include "zeepo/kernels/softmax.h"

namespace zeepo {

using namespace dry;

void fill(DryStream& s, View y, float) { moves(s, y); }
void copy(DryStream& s, ConstView x, View y) { moves(s, x, y); }
void add(DryStream& s, ConstView a, ConstView b, View y) { moves(s, a, b, y); }
void add_rounded(DryStream& s, ConstView a, ConstView b, View y) { moves(s, a, b, y); }
void scale(DryStream& s, ConstView x, float, View y) { moves(s, x, y); }
void scale_by(DryStream& s, ConstView x, ConstView, View y) { moves(s, x, y); }
void activate(DryStream& s, Activation, ConstView x, View y) { moves(s, x, y); }
void activate_backward(DryStream& s, Activation, ConstView x, ConstView dy, View dx) { moves(s, x, dy, dx); }
void swiglu(DryStream& s, ConstView x, View y) { moves(s, x, y); }
void swiglu_backward(DryStream& s, ConstView x, ConstView dy, View dx) { moves(s, x, dy, dx); }
void dropout(DryStream& s, ConstView x, float, RngKey, View y) { moves(s, x, y); }
void copy_heads(DryStream& s, ConstHeads from, Heads to) { moves(s, from, to); }

void encode_heads(DryStream& s, ConstHeads from, Heads codes) { moves(s, from, codes); }
void expand_heads(DryStream& s, ConstHeads codes, Heads to) { moves(s, codes, to); }
void expand_weights(DryStream& s, CodedType type, const std::byte*, View values) {
  s.time()->compute(seconds_to_move(s, bytes_of(values) + static_cast<double>(coded_bytes(type, values.elements()))));
}

void embed(DryStream& s, ConstView, ConstView, View y) { moves(s, y, y); }
void embed_backward(DryStream& s, ConstView, ConstView dy, View dtable, Write write) {
  write == Write::overwrite ? moves(s, dy, dy, dtable) : moves(s, dy, dy, dy);
}

void layer_norm(DryStream& s, const LayerNormForward& x) {
  s.time()->compute(seconds_to_move(s, bytes_of(x.x) + 2 * bytes_of(x.delta) + bytes_of(x.y)));
}
void layer_norm_backward(DryStream& s, const LayerNormBackward& x) { moves(s, x.dy, x.x, x.dx); }
void rms_norm(DryStream& s, const RmsNormForward& x) {
  s.time()->compute(seconds_to_move(s, bytes_of(x.x) + 2 * bytes_of(x.delta) + bytes_of(x.y)));
}
void rms_norm_backward(DryStream& s, const RmsNormBackward& x) { moves(s, x.dy, x.x, x.dx); }
void rms_norm_heads(DryStream& s, ConstHeads x, ConstView, float, Heads y, View) { moves(s, x, y); }
void rms_norm_heads_backward(DryStream& s, ConstHeads dy, ConstHeads x, ConstView, ConstView, Heads dx, View, Write) {
  moves(s, dy, x, dx);
}

void rotate(DryStream& s, Heads x, ConstView, ConstView, std::int64_t, Turn) { moves(s, x, x); }

void softmax(DryStream& s, ConstView x, View y) { moves(s, x, y); }
void softmax_backward(DryStream& s, ConstView y, ConstView dy, View dx) { moves(s, y, dy, dx); }
void cross_entropy(DryStream& s, ConstView logits, ConstView, View, View dlogits, float) {
  s.time()->compute(seconds_to_move(s, bytes_of(logits) + bytes_of(dlogits)));
}
void sum(DryStream& s, ConstView x, float, View, bool) { moves(s, x); }

}  // namespace zeepo
