// Parameters that stay as they are, chosen by name.
#pragma once

#include <string>
#include <vector>

#include "zeepo/nn/module.h"

namespace zeepo {

// Freezes every weight whose name, as files know it, one of the patterns matches (fnmatch: * ? [...]). Of projections
// that share a parameter some may be frozen: tile_linears() (nn/layers.h) must then cut the layer. Throws UsageError
// starting with `option` for a pattern that matches nothing, and where no weight is left to train.
void freeze(Module& model, const std::vector<std::string>& patterns, const std::string& option);

}  // namespace zeepo
