#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "zeepo/elastic/host_list.h"
#include "zeepo/elastic/job_lines.h"
#include "zeepo/elastic/launch_command.h"
#include "zeepo/elastic/rank_layout.h"
#include "zeepo/elastic/verdict.h"

namespace zeepo {
namespace {

using Hosts = std::vector<HostSlots>;

TEST(HostList, IsReadFromATextOrAFile) {
  EXPECT_EQ(read_hosts("", 3), (Hosts{{"localhost", 3}}));
  EXPECT_EQ(read_hosts("node1,node2:4,10.0.0.7", 2), (Hosts{{"node1", 2}, {"node2", 4}, {"10.0.0.7", 2}}));
  const TestDirectory directory;
  const std::string path = directory.path() / "hosts";
  std::ofstream(path) << "# of the second row\nnode1 slots=4\n\n  node2   # without a number\n";
  EXPECT_EQ(read_hosts(path, 2), (Hosts{{"node1", 4}, {"node2", 2}}));
  EXPECT_EQ(slots_of(read_hosts(path, 2)), 6);
  EXPECT_EQ(names_of(read_hosts(path, 2)), "node1, node2");
  EXPECT_TRUE(is_this_machine("localhost"));
  EXPECT_FALSE(is_this_machine("a-machine-that-is-not-this-one"));
}

TEST(HostList, MayBeLongerThanTheNameOfAFile) {
  std::string text = "node0";
  for (int i = 1; i < 600; ++i) text += fmt::format(",node{}", i);
  EXPECT_GT(text.size(), 4096u);
  EXPECT_EQ(slots_of(read_hosts(text, 2)), 1200);
}

TEST(HostList, NamesThatAreNoneAreRefused) {
  for (const char* text : {"-oProxyCommand=x", "a b", "node1,,node2", "node1,node1", "node1:0", "node1:x",
                           "node1:", "node1:9999", "$(true)", "user@node1", ","})
    EXPECT_THROW(read_hosts(text, 1), UsageError) << text;
  const TestDirectory directory;
  const std::string path = directory.path() / "hosts";
  for (const char* text : {"", "# nobody\n", "node1 slots=0\n", "node1 max=2\n", "-x\n", "node1\nnode1\n"}) {
    std::ofstream(path) << text;
    EXPECT_THROW(read_hosts(path, 1), UsageError) << text;
  }
}

TEST(RankLayout, KeepsTheMicroBatchesOfAStep) {
  for (std::int64_t batches = 1; batches <= 24; ++batches)
    for (int count = 1; count <= 5; ++count)
      for (int slots = 1; slots <= 4; ++slots) {
        Hosts hosts;
        for (int i = 0; i < count; ++i) hosts.push_back({fmt::format("node{}", i), slots});
        const RankLayout layout = layout_on(hosts, batches);
        EXPECT_EQ(layout.ranks * layout.grad_accum, batches);
        EXPECT_EQ(slots_of(layout.hosts), layout.ranks);
        for (int more = layout.ranks + 1; more <= count * slots; ++more) EXPECT_NE(batches % more, 0) << "fits too";
        for (const HostSlots& host : layout.hosts) {
          EXPECT_LE(host.slots, slots);
          EXPECT_LE(layout.hosts[0].slots - host.slots, 1) << "evenly";
        }
      }
}

TEST(RankLayout, HostsOfOtherSizesAreFilledInTurn) {
  EXPECT_EQ(layout_on({{"a", 1}, {"b", 4}}, 20), (RankLayout{{{"a", 1}, {"b", 4}}, 5, 4}));
  EXPECT_EQ(layout_on({{"a", 1}, {"b", 4}}, 8), (RankLayout{{{"a", 1}, {"b", 3}}, 4, 2}));
  EXPECT_EQ(layout_on({{"a", 1}, {"b", 1}}, 3), (RankLayout{{{"a", 1}}, 1, 3}));
  EXPECT_THROW(layout_on({}, 3), Error);
}

TEST(JobLines, TellALossAndItsCause) {
  JobLines lines;
  EXPECT_FALSE(lines.any());
  lines.add("step 1 loss 2.5\nzeepo: rank 0: rank 2 on host node3 has been si");
  EXPECT_TRUE(lines.any());
  EXPECT_EQ(lines.loss(), "");
  lines.add("lent for 10 s while rank 0 waited for all-gather\nzeepo: rank 1: rank 2 has been silent for 10 s while\n");
  EXPECT_EQ(lines.loss(), "rank 2 on host node3 has been silent for 10 s");
  EXPECT_TRUE(lines.ending());
  EXPECT_FALSE(lines.directory_taken());

  JobLines killed;
  killed.add("mpirun noticed that process rank 2 with PID 220 on node node3 exited on signal 9 (Killed).\n");
  EXPECT_EQ(killed.loss(),
            "mpirun noticed that process rank 2 with PID 220 on node node3 exited on signal 9 (Killed).");
  JobLines taken;
  taken.add(std::string(1 << 20, 'x') + "\n");
  taken.add("zeepo: rank 0: --checkpoint-dir a: another run writes its checkpoints there; end it\n");
  EXPECT_TRUE(taken.directory_taken());
  EXPECT_EQ(taken.loss(), "");
}

EndedJob ended(int code) {
  EndedJob job;
  job.exit_code = code;
  return job;
}

TEST(Verdict, AFailureThatIsNoLossEndsTheRun) {
  Verdict verdict;
  EXPECT_EQ(verdict.next_after(ended(0)), Next::finished);
  for (const int code : {1, 2, 3, 127}) EXPECT_EQ(verdict.next_after(ended(code)), Next::give_up) << code;
  EndedJob usage = ended(2);
  usage.rank_lost = usage.host_lost = true;
  EXPECT_EQ(verdict.next_after(usage), Next::give_up);
}

TEST(Verdict, ALossIsFollowedByAnotherJob) {
  for (int life = 0; life < 100; ++life) {
    Verdict verdict;
    EndedJob job = ended(1);
    job.host_lost = true;
    EXPECT_EQ(verdict.next_after(job), Next::again);
  }
  Verdict verdict;
  for (int life = 0; life < 100; ++life) {  // each with a new checkpoint
    EndedJob job = ended(137);
    job.step_before = life;
    job.step_after = life + 1;
    EXPECT_EQ(verdict.next_after(job), Next::again);
    job = ended(1);
    job.asked_to_stop = true;
    EXPECT_EQ(verdict.next_after(job), Next::again);
  }
}

TEST(Verdict, TheSameLossWithoutProgressIsNoAccident) {
  Verdict verdict;
  EndedJob job = ended(137);
  job.step_before = job.step_after = 40;
  for (int i = 1; i < Verdict::kMostFruitless; ++i) EXPECT_EQ(verdict.next_after(job), Next::again);
  EXPECT_EQ(verdict.next_after(job), Next::give_up);
  EXPECT_TRUE(names(verdict.reason(), "step 40"));
  Verdict other;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(other.next_after(job), Next::again);
    job.host_lost = !job.host_lost;  // another cause each time
  }
}

TEST(Verdict, WaitsForTheDirectoryAWhile) {
  Verdict verdict;
  EndedJob job = ended(1);
  job.directory_taken = true;
  for (int i = 0; i < Verdict::kMostPauses; ++i) EXPECT_EQ(verdict.next_after(job), Next::again_after_pause);
  EXPECT_EQ(verdict.next_after(job), Next::give_up);
}

TEST(LaunchCommand, HasTheGivenOptionsAndTheLayout) {
  const RankLayout layout{{{"node1", 2}, {"node3", 1}}, 3, 4};
  const auto command = launch_command(layout, "/opt/zeepo",
                                      {{"--elastic", "true"},
                                       {"--hosts", "node1,node2,node3"},
                                       {"--ranks-per-host", "2"},
                                       {"--grad-accum", "2"},
                                       {"--resume", "newest"},
                                       {"--no-shuffle", "true"},
                                       {"--from-scratch", "false"},
                                       {"--log", "-"},
                                       {"--model", "my model"}},
                                      "ds.json");
  const auto at = std::ranges::find(command, "/opt/zeepo");
  ASSERT_NE(at, command.end());
  EXPECT_EQ(std::vector<std::string>(at, command.end()),
            (std::vector<std::string>{"/opt/zeepo", "train", "--config=ds.json", "--log=-", "--model=my model",
                                      "--no-shuffle", "--grad-accum=4", "--resume"}));
  EXPECT_EQ(std::vector<std::string>(command.begin(), command.begin() + 5),
            (std::vector<std::string>{"mpirun", "-n", "3", "--host", "node1:2,node3:1"}));
}

}  // namespace
}  // namespace zeepo
