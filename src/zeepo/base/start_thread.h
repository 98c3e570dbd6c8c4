// A thread, or an Error that names what it was for and the limits to raise.
//
// The system refuses a thread when the user's limit is reached (ulimit -u, a container's pids limit) or when there is
// no room for its stack (ulimit -v). Who starts several threads joins those that run already before the Error goes on;
// start_thread<std::jthread> does so by itself.
#pragma once

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "zeepo/base/error.h"

namespace zeepo {

template <class Thread = std::thread, class F>
Thread start_thread(std::string_view purpose, F&& f) {
  try {
    return Thread(std::forward<F>(f));
  } catch (const std::system_error& cause) {
    throw Error(
        "cannot start a thread for {}: {}; raise the limit of threads (ulimit -u) or of memory (ulimit -v), or lower "
        "--threads",
        purpose, cause.code().message());
  }
}

}  // namespace zeepo
