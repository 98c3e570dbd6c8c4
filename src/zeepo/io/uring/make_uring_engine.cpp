#include "zeepo/io/uring/uring_engine.h"

namespace zeepo {

std::unique_ptr<IoEngine> make_uring_engine(const IoOptions& options) { return std::make_unique<UringEngine>(options); }

}  // namespace zeepo
