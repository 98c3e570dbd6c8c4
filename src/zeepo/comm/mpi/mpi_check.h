// Reads an MPI result: anything but success is an Error with MPI's own words.
#pragma once

#include <mpi.h>

#include <source_location>
#include <string>

#include "zeepo/base/error.h"

namespace zeepo {

inline std::string mpi_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return fmt::format("MPI: {}", text);
}

inline void mpi_check(int code, std::source_location at = std::source_location::current()) {
  if (code != MPI_SUCCESS) throw Error("{} in {}", mpi_text(code), at.function_name());
}

}  // namespace zeepo
