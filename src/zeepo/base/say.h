// Text for people, to stderr, without what would steer a terminal (base/printable.h). A stderr that takes nothing (its
// disk is full) ends no run: what cannot be said is dropped. fmt::print would throw.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

#include "zeepo/base/printable.h"

namespace zeepo {

template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = printable(fmt::format(format, std::forward<Args>(args)...));
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

// In place of the line that the cursor of a terminal stands in.
template <class... Args>
void say_anew(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = "\r\x1b[K" + printable(fmt::format(format, std::forward<Args>(args)...));
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace zeepo
