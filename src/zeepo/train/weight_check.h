// Weights that are numbers, and fit the dtype that keeps them: looked at where they are read, to be hashed or saved.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "zeepo/base/dtype.h"
#include "zeepo/base/error.h"

namespace zeepo {

// `finite`: a number, which only another dtype can hold.
class UnfitWeight : public Error {
 public:
  UnfitWeight(const std::string& message, bool finite) : Error("{}", message), finite_(finite) {}
  bool finite() const { return finite_; }

 private:
  bool finite_;
};

struct WeightCheck {
  DType dtype;
  std::string when;     // "train: after step 3"
  std::string way_out;  // for a finite value that is too large: "use --output-dtype fp32"

  // Throws UnfitWeight naming the weight, the element and its value for the first that `dtype` does not hold. `values`
  // are those from element `begin` on.
  void operator()(const std::string& name, std::int64_t begin, std::span<const float> values) const;
};

}  // namespace zeepo
