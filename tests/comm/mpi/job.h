// The communicator of the MPI job that a test program runs in.
#pragma once

#include "zeepo/comm/launch.h"

namespace zeepo {

Communicator& job();

}  // namespace zeepo
