// A process to which the system grants few threads, for EXPECT_EXIT: a user of its own, whose limit is reached soon.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace zeepo {

inline constexpr int kRefused = 3, kGranted = 4, kNoLimit = 5;

// Grants this process at most `threads`, runs f, and exits: kRefused with what f threw on stderr, kGranted when it
// threw nothing. Never returns; a hang ends by SIGALRM, which no exit code equals.
template <class F>
[[noreturn]] void exit_with_refusal(unsigned threads, F&& f) {
  constexpr unsigned kNobody = 65534;
  // The limit binds no superuser, and counts all threads of the user.
  if (::getuid() == 0 && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) std::_Exit(kNoLimit);
  const rlimit limit{threads, threads};
  if (::setrlimit(RLIMIT_NPROC, &limit) != 0) std::_Exit(kNoLimit);
  ::alarm(20);
  try {
    f();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(kRefused);
  }
  std::_Exit(kGranted);
}

// f must end in an Error that matches `text`, within seconds, whichever thread is the first to be refused.
#define EXPECT_REFUSED(f, text)               \
  for (const unsigned granted : {1U, 2U, 4U}) \
  EXPECT_EXIT(exit_with_refusal(granted, f), testing::ExitedWithCode(kRefused), text) << granted << " granted"

}  // namespace zeepo
