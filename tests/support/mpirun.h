// For tests that start mpirun: ranks may outnumber the cores, and tests may run as root.
#pragma once

#include <cstdlib>

namespace zeepo {

[[maybe_unused]] inline const bool mpirun_may_start = [] {
  for (const char* name :
       {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"})
    ::setenv(name, "1", 1);
  return ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1) == 0;
}();

}  // namespace zeepo
