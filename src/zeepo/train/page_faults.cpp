#include "zeepo/train/page_faults.h"

#include <utility>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/zero/rank_talk.h"

namespace zeepo {

bool PageFaults::any() const { return session_.lower().read_again().pages > told_; }

void PageFaults::tell(std::int64_t step) {
  Communicator& communicator = session_.communicator();
  const PagesReadAgain own = session_.lower().read_again();
  const std::int64_t fresh = own.pages - std::exchange(told_, own.pages);
  std::vector<float> pages(static_cast<std::size_t>(communicator.size()));
  pages[static_cast<std::size_t>(communicator.rank())] = static_cast<float>(fresh);
  if (pages.size() > 1) sum_over_ranks(engine_.collectives(), pages);
  for (std::size_t rank = 0; rank < pages.size(); ++rank)
    if (pages[rank] > 0)
      report_.fault(step, "swap file",
                    fmt::format("rank {}: {:.0f} pages had a wrong checksum, and were right when read again{}; look at "
                                "the disk",
                                rank, pages[rank],
                                rank == static_cast<std::size_t>(communicator.rank()) ? ", last " + own.last : ""));
}

}  // namespace zeepo
