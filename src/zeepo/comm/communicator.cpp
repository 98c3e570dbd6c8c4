#include "zeepo/comm/communicator.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "zeepo/base/partial_files.h"
#include "zeepo/base/say.h"

namespace zeepo {

void Communicator::abort_job(const std::string& message) {
  say("zeepo: rank {}: {}\n", rank(), message);
  std::fflush(nullptr);
  remove_partial_files();
  std::_Exit(1);
}

}  // namespace zeepo
