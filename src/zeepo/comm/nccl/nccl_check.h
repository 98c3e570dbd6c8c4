// Reads an NCCL result: anything but success is an Error with NCCL's own words.
#pragma once

#include <nccl.h>

#include <string>

#include "zeepo/base/error.h"

namespace zeepo {

// `comm` may be null: what NCCL itself last had to say.
inline std::string nccl_text(ncclResult_t code, ncclComm_t comm = nullptr) {
  const char* detail = ncclGetLastError(comm);
  const bool has_detail = detail != nullptr && *detail != '\0';
  return fmt::format("NCCL: {}{}{}", ncclGetErrorString(code), has_detail ? ": " : "", has_detail ? detail : "");
}

inline void nccl_check(ncclResult_t code, const char* caller = __builtin_FUNCTION()) {
  if (code != ncclSuccess) throw Error("{} in {}", nccl_text(code), caller);
}

}  // namespace zeepo
