// Reads an MPI result: anything but success is an Error with MPI's own words.
#pragma once

#include <mpi.h>

#include <string>

#include "zeepo/base/error.h"

namespace zeepo {

inline std::string mpi_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return fmt::format("MPI: {}", text);
}

// The caller's name comes from the compiler: std::source_location is not in every one that builds this.
inline void mpi_check(int code, const char* caller = __builtin_FUNCTION()) {
  if (code != MPI_SUCCESS) throw Error("{} in {}", mpi_text(code), caller);
}

}  // namespace zeepo
