// Reads an MPI result: anything but success is an Error with MPI's own words.
#pragma once

#include <mpi.h>

#include <source_location>
#include <string_view>

#include "zeepo/base/error.h"

namespace zeepo {

inline void mpi_check(int code, std::source_location at = std::source_location::current()) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error("MPI in {}: {}", at.function_name(), std::string_view(text, static_cast<std::size_t>(length)));
}

}  // namespace zeepo
