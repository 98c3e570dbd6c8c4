#include "zeepo/kernels/cpu/embedding_occurrences.h"

#include <algorithm>
#include <vector>

namespace zeepo {

Occurrences find_occurrences(const std::int32_t* ids, std::int64_t count, std::int64_t vocabulary) {
  static thread_local std::vector<std::int32_t> first, next;
  if (first.size() < static_cast<std::size_t>(vocabulary)) first.resize(static_cast<std::size_t>(vocabulary));
  if (next.size() < static_cast<std::size_t>(count)) next.resize(static_cast<std::size_t>(count));
  std::fill_n(first.begin(), vocabulary, -1);
  for (std::int64_t i = count; i-- > 0;) {  // from the back, so that the lists run forward
    auto& head = first[static_cast<std::size_t>(ids[i])];
    next[static_cast<std::size_t>(i)] = head;
    head = static_cast<std::int32_t>(i);
  }
  return {first.data(), next.data()};
}

}  // namespace zeepo
