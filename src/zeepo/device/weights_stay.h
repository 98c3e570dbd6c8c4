#pragma once

#include "zeepo/device/stream.h"

namespace zeepo {

// From now on no kernel or copy writes weights between their uses, or may again: kernels of a GPU's stream that use
// weights may ask for them ahead. Other streams do not mind.
void set_weights_stay(Stream& stream, bool stay);

}  // namespace zeepo
