// How gathered weights come to all nodes (--gather-route): straight to each, or around a ring, as the links are found.
//
// The bytes are the same, and so are the bits: a gather adds nothing up. What differs is how many messages meet at a
// node at the same time, and how many follow one another. All ranks time both ways together and come to the same.
#pragma once

#include "zeepo/comm/communicator.h"
#include "zeepo/train/run_setup.h"

namespace zeepo {

// The setup with the way in force and, where it was chosen by time, what was timed. Every rank calls it. Nothing is
// sent where options say the way, or where there is no choice: with fewer than three nodes, or on GPUs. Takes half a
// second at most, unless one small gather takes longer.
RunSetup choose_gather_route(const RunSetup& setup, Communicator& communicator);

// A ring must save a tenth of the time: it waits for one node after another, which hides less behind compute.
bool ring_is_faster(const RunSetup::TimedGathers& timed);

}  // namespace zeepo
