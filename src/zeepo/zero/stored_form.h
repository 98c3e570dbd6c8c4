// How a rank's shard of a unit's weights is stored where codes are kept instead of values: coded rows of all of the
// shard, then the exact values of parameters that codes would harm, those of one dimension. Pure.
//
// Every rank's shard takes the same bytes, so that shards can be all-gathered as they are stored.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "zeepo/kernels/coded_weights.h"
#include "zeepo/zero/unit.h"

namespace zeepo {

// Fills `rows` with a parameter's coded rows from `first` on, made earlier. False: they are not to be had, and are made
// from the values.
using CodedSource =
    std::function<bool(const UnitParameter& parameter, CodedType type, std::int64_t first, std::span<std::byte> rows)>;

// Whether the parameter is stored as it is.
bool stays_exact(const UnitParameter& parameter);

class StoredForm {
 public:
  StoredForm() = default;  // not coded
  StoredForm(CodedType type, DType dtype, const Unit& unit, std::int64_t shard_elements, int ranks);

  // Whether enough of the unit is in matrices that codes save memory.
  static bool worth_it(const Unit& unit);

  CodedType type() const { return type_; }
  bool coded() const { return type_ != CodedType::same; }
  std::size_t bytes() const { return bytes_; }  // of each rank's shard

  // Bytes of the codes of [0, elements) of a shard: whole rows.
  std::size_t code_bytes(std::int64_t elements) const { return coded_bytes(type_, elements); }
  std::size_t exact_offset() const { return exact_offset_; }
  // Exact values of the rank's shard: elements of the unit, and the byte of the shard where they begin.
  struct Exact {
    Extent extent;
    std::size_t offset;
  };
  std::vector<Exact> exact_parts(int rank) const;

 private:
  CodedType type_ = CodedType::same;
  DType dtype_ = DType::f32;
  std::int64_t shard_elements_ = 0;
  std::vector<Extent> exact_;  // of the unit
  std::size_t exact_offset_ = 0, bytes_ = 0;
};

}  // namespace zeepo
