// Errors in the making of a sink, with its name: "--csv run.csv: cannot create it: Permission denied".
#pragma once

#include <string>

#include "zeepo/base/error.h"

namespace zeepo {

template <class Make>
auto named_by(const std::string& name, Make&& make) {
  try {
    return make();
  } catch (const std::exception& error) {
    throw Error("{}: {}", name, error.what());
  }
}

}  // namespace zeepo
