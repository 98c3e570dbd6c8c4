// Where each id occurs: a linked list through the places of each id, in rising order, so that a table's row can be
// summed by one task, in a fixed order and without atomics.
#pragma once

#include <cstdint>

namespace zeepo {

struct Occurrences {
  const std::int32_t* first;  // (vocabulary): the first place of an id; −1: it does not occur
  const std::int32_t* next;   // (count): the next place with the same id; −1: none
};

// In memory that the calling thread keeps from call to call; valid until it calls again.
Occurrences find_occurrences(const std::int32_t* ids, std::int64_t count, std::int64_t vocabulary);

}  // namespace zeepo
