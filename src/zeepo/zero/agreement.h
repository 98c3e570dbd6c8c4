// What all ranks must have in common, checked before the first collective of the work: a difference is an error that
// names it, not a hang.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "zeepo/comm/communicator.h"

namespace zeepo {

// Pairs of a name and this rank's value. Throws Error on every rank, naming the ranks and what they differ in.
void check_agreement(Communicator& communicator, const std::vector<std::pair<std::string, std::string>>& values);

// The largest of the ranks' numbers.
std::int32_t largest_over_ranks(Communicator& communicator, std::int32_t own);

// Every rank's text, in rank order.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text);

}  // namespace zeepo
