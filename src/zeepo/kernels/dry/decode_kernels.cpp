// A dry pass without a clock takes the memory of single operations, which is never less; one with a clock takes the
// time of these kernels, as a GPU does.
#include "zeepo/kernels/decode_attention.h"
#include "zeepo/kernels/dry/dry_kernels.h"
#include "zeepo/kernels/embed_codes.h"
#include "zeepo/kernels/few_row_product.h"
#include "zeepo/kernels/most_likely.h"

namespace zeepo {

bool takes(DryStream&, const FewRowProduct& op) {
  return op.coded == CodedType::same || op.x.shape[-1] % kCodedRow == 0;
}

// Codes become values in registers about as fast as values of 16 bits are read (bench/RESULTS.md, "One token at a
// time"): their time is that of the values.
void multiply(DryStream& s, const FewRowProduct& op) {
  const auto columns = static_cast<double>(op.y.shape[-1]) * (op.swiglu ? 2 : 1);
  const double weight_bytes = columns * static_cast<double>(op.x.shape[-1]) * static_cast<double>(size_of(op.x.dtype));
  s.time()->compute(dry::seconds_to_move(s, weight_bytes + dry::bytes_of(op.x) + dry::bytes_of(op.y)));
}

bool takes(DryStream&, const DecodeAttention& op) { return op.q.rows == 1 && op.keys.dtype == op.q.dtype; }
void attend(DryStream& s, const DecodeAttention& op) { dry::moves(s, op.q, op.keys, op.values, op.out); }
void embed_codes(DryStream& s, ConstView, CodedType, const std::byte*, View y) { dry::moves(s, y, y); }
void most_likely(DryStream& s, ConstView logits, View) { dry::moves(s, logits); }

}  // namespace zeepo
