#include "zeepo/zero/stored_form.h"

#include <algorithm>

namespace zeepo {
namespace {

static_assert(Unit::kAlignment == kCodedRow, "parameters and shards begin with a row");

constexpr std::size_t kPartAlignment = 256;  // of what kernels and collectives are given

std::size_t aligned(std::size_t bytes) { return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment; }

}  // namespace

bool stays_exact(const UnitParameter& parameter) { return parameter.shape.rank() < 2; }

bool StoredForm::worth_it(const Unit& unit) {
  std::int64_t exact = 0;
  for (const UnitParameter& parameter : unit.parameters)
    if (stays_exact(parameter)) exact += parameter.shape.elements();
  return exact * 4 <= unit.elements;
}

StoredForm::StoredForm(CodedType type, DType dtype, const Unit& unit, std::int64_t shard_elements, int ranks)
    : type_(type), dtype_(dtype), shard_elements_(shard_elements) {
  for (const UnitParameter& parameter : unit.parameters)
    if (stays_exact(parameter)) exact_.push_back(parameter.extent());
  exact_offset_ = aligned(code_bytes(shard_elements));
  bytes_ = exact_offset_;
  for (int rank = 0; rank < ranks; ++rank)
    if (const auto parts = exact_parts(rank); !parts.empty()) {
      const auto last = static_cast<std::size_t>(parts.back().extent.elements()) * size_of(dtype);
      bytes_ = std::max(bytes_, aligned(parts.back().offset + last));
    }
}

std::vector<StoredForm::Exact> StoredForm::exact_parts(int rank) const {
  std::vector<Exact> parts;
  std::size_t offset = exact_offset_;
  for (const Extent& extent : exact_) {
    const Extent own = common(extent, {rank * shard_elements_, (rank + 1) * shard_elements_});
    if (own.empty()) continue;
    parts.push_back({own, offset});
    offset += aligned(static_cast<std::size_t>(own.elements()) * size_of(dtype_));
  }
  return parts;
}

}  // namespace zeepo
