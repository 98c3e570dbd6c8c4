// Processes that the supervisor starts: how they end is known whatever it has inherited.
#include "zeepo/elastic/child_process.h"

#include <gtest/gtest.h>

#include <csignal>

namespace zeepo {
namespace {

// As who starts zeepo may have left it; as it was before, afterwards.
class IgnoredSigchld {
 public:
  IgnoredSigchld() : before_(::signal(SIGCHLD, SIG_IGN)) {}
  ~IgnoredSigchld() { ::signal(SIGCHLD, before_); }
  IgnoredSigchld(const IgnoredSigchld&) = delete;
  IgnoredSigchld& operator=(const IgnoredSigchld&) = delete;

 private:
  void (*before_)(int);
};

// Nothing where the process does not end.
std::optional<int> end_of(ChildProcess& process) {
  for (int i = 0; i < 1000; ++i) {
    if (const auto code = process.ended()) return code;
    (void)process.read(10);
  }
  return std::nullopt;
}

TEST(ChildProcess, TellsHowItHasEnded) {
  ChildProcess good({"true"}, ChildProcess::Output::none), bad({"sh", "-c", "exit 7"}, ChildProcess::Output::none);
  ChildProcess killed({"sh", "-c", "kill -KILL $$"}, ChildProcess::Output::none);
  ChildProcess absent({"a-program-that-is-not-there"}, ChildProcess::Output::none);
  EXPECT_EQ(end_of(good), 0);
  EXPECT_EQ(end_of(bad), 7);
  EXPECT_EQ(end_of(killed), 128 + SIGKILL);
  EXPECT_EQ(end_of(absent), 127);
}

TEST(ChildProcess, TellsSoWhereSigchldIsIgnored) {
  const IgnoredSigchld inherited;
  ChildProcess process({"sh", "-c", "exit 7"}, ChildProcess::Output::none);
  const auto code = end_of(process);
  EXPECT_EQ(code, 7);
  if (!code) std::_Exit(1);  // the destructor would wait for ever
}

}  // namespace
}  // namespace zeepo
