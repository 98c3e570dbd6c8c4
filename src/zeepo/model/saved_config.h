// The config.json that a saved model gets: its source's, made true of the weights beside it.
#pragma once

#include <string>
#include <string_view>

#include "zeepo/base/dtype.h"

namespace zeepo {

// `json` with the dtype set, in the spelling it uses, and "architectures" filled in where it has none. Everything else
// stays as it is, in its order. Throws Error, which `what` names, for a text that parse_config refuses.
std::string saved_config(std::string_view json, DType dtype, const std::string& what = "config.json");

}  // namespace zeepo
