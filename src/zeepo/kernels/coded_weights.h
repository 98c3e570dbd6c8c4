// Weights as they are stored: int8 or int4 codes in rows of 128 values, the scales beside them.
//
// A value is its code times the scale of its block: 64 values share a scale in int8, 32 in int4. Scales are bf16. A row
// is its codes and then its scales, so that rows stand one after another and any of them can be read alone: what is cut
// at whole rows has the same values as the whole. A row of int4 has value i in the low half of byte i and value i + 64
// in the high half. A block that holds an infinity or a NaN comes back as NaN.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"

namespace zeepo {

enum class CodedType : std::uint8_t { same, int8, int4 };  // same: not coded
struct WeightCodec {
  CodedType type;
  std::string_view name;
};
// All of them, the most exact first: what options, plans and ways out of too little memory are made from.
inline constexpr std::array kWeightCodecs{WeightCodec{CodedType::same, "same"}, WeightCodec{CodedType::int8, "int8"},
                                          WeightCodec{CodedType::int4, "int4"}};
static_assert([] {
  for (std::size_t i = 0; i < kWeightCodecs.size(); ++i)
    if (kWeightCodecs[i].type != static_cast<CodedType>(i)) return false;
  return true;
}());
constexpr std::string_view name_of(CodedType type) { return kWeightCodecs[static_cast<std::size_t>(type)].name; }

inline constexpr std::int64_t kCodedRow = 128;

constexpr std::int64_t coded_block(CodedType type) { return type == CodedType::int8 ? 64 : 32; }
constexpr std::size_t code_bytes(CodedType type) { return type == CodedType::int8 ? kCodedRow : kCodedRow / 2; }
constexpr std::size_t coded_row_bytes(CodedType type) {
  return code_bytes(type) + static_cast<std::size_t>(kCodedRow / coded_block(type)) * sizeof(std::uint16_t);
}
constexpr std::int64_t coded_rows(std::int64_t elements) { return (elements + kCodedRow - 1) / kCodedRow; }
constexpr std::size_t coded_bytes(CodedType type, std::int64_t elements) {
  return static_cast<std::size_t>(coded_rows(elements)) * coded_row_bytes(type);
}

// Writes all rows of `values`, in host memory; the last one is filled up with zeros. int4 tries several scales for each
// block and takes the one that loses least. The same bits on any number of threads. Not for CodedType::same.
void encode_weights(CpuStream& stream, CodedType type, std::span<const float> values, std::byte* rows);

// All values of these rows, rounded to the view's type. The view has whole rows.
void expand_weights(CpuStream&, CodedType type, const std::byte* rows, View values);
void expand_weights(CudaStream&, CodedType type, const std::byte* rows, View values);
void expand_weights(DryStream&, CodedType type, const std::byte* rows, View values);

}  // namespace zeepo
