#include "zeepo/base/first_failure.h"

#include <vector>

#include "tests/support/errors.h"

namespace zeepo {
namespace {

TEST(FirstFailure, AllPartsAreDoneAndTheFirstFailureIsTold) {
  FirstFailure failure;
  std::vector<int> done;
  for (int part = 0; part < 4; ++part)
    failure.outlast([&] {
      done.push_back(part);
      if (part % 2 == 1) throw Error("part {}", part);
    });
  EXPECT_EQ(done, (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(error_text([&] { failure.rethrow(); }), "part 1");
}

TEST(FirstFailure, WithoutOneNothingIsThrown) {
  FirstFailure failure;
  failure.outlast([] {});
  EXPECT_NO_THROW(failure.rethrow());
}

}  // namespace
}  // namespace zeepo
