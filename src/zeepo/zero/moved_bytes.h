// Bytes that a rank has moved: sent to other ranks, carried over its link and to and from its files.
#pragma once

#include "zeepo/comm/communicator.h"
#include "zeepo/memory/lower_tiers.h"

namespace zeepo {

struct MovedBytes {
  CommBytes sent;
  LinkBytes carried;

  friend MovedBytes operator+(const MovedBytes& a, const MovedBytes& b) {
    return {a.sent + b.sent,
            {a.carried.to_device + b.carried.to_device, a.carried.to_host + b.carried.to_host,
             a.carried.read + b.carried.read, a.carried.written + b.carried.written}};
  }
  friend MovedBytes operator-(const MovedBytes& a, const MovedBytes& b) {
    return {a.sent - b.sent, a.carried - b.carried};
  }
};

class Collectives;
// Through these and the current Device's tiers.
MovedBytes moved_so_far(const Collectives& collectives);

}  // namespace zeepo
