// Pages of swap files that were wrong when they were read, and right when they were read again: a disk, a controller or
// a cable that begins to fail. The run goes on, and says so.
#pragma once

#include <cstdint>

#include "zeepo/binding/model_engine.h"
#include "zeepo/train/run_report.h"
#include "zeepo/zero/session.h"

namespace zeepo {

class PageFaults {
 public:
  // Borrows everything.
  PageFaults(Session& session, ModelEngine& engine, RunReport& report)
      : session_(session), engine_(engine), report_(report) {}

  // Whether this rank has pages that nobody was told of.
  bool any() const;
  // On all ranks, after the same step: a fault of each rank that has some.
  void tell(std::int64_t step);

 private:
  Session& session_;
  ModelEngine& engine_;
  RunReport& report_;
  std::int64_t told_ = 0;  // of this rank's pages
};

}  // namespace zeepo
