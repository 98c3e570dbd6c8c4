// An engine whose disk is slow: for measuring how much of it the compute hides, on a machine whose own is fast.
//
// Reads and writes share one link of the given rate, in the order in which they were submitted: a completion is done no
// sooner than the link has carried its bytes. Borrows the other engine, which does the work.
#pragma once

#include "zeepo/base/pace.h"
#include "zeepo/io/engine.h"

namespace zeepo {

class ThrottledEngine final : public IoEngine {
 public:
  // Throws Error unless the rate is more than 0.
  ThrottledEngine(IoEngine& inner, double bytes_per_second);

  std::string name() const override;
  void register_ranges(std::span<const std::span<std::byte>> ranges) override { inner_.register_ranges(ranges); }
  IoCompletion submit(IoDirection direction, std::span<const IoTransfer> transfers) override;

 private:
  IoEngine& inner_;
  Pace pace_;
};

}  // namespace zeepo
