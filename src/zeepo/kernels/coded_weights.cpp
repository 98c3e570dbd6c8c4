#include "zeepo/kernels/coded_weights.h"

namespace zeepo {

std::string_view name_of(CodedType type) {
  switch (type) {
    case CodedType::same: return "same";
    case CodedType::int8: return "int8";
    case CodedType::int4: return "int4";
  }
  return "?";
}

}  // namespace zeepo
