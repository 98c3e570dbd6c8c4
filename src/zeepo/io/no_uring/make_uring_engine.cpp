#include "zeepo/base/error.h"
#include "zeepo/io/engine.h"

namespace zeepo {

std::unique_ptr<IoEngine> make_uring_engine(const IoOptions&) {
  throw Error("this build has no io_uring: install liburing-dev and build again");
}

}  // namespace zeepo
