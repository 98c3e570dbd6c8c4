// How many turns loops have taken that could grow faster than the model: for tests that compare the count of a model
// with that of one of ten times the units. A count, never a time.
//
// Each thread counts for itself. A loop over units within something that is done for each unit belongs here; loops that
// run once a pass do not.
#pragma once

#include <cstdint>

namespace zeepo {

inline std::int64_t& work_count() {
  thread_local std::int64_t count = 0;
  return count;
}

inline void count_work(std::int64_t turns = 1) { work_count() += turns; }

}  // namespace zeepo
