#include "zeepo/base/machine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "tests/support/units.h"

namespace zeepo {
namespace {

TEST(UsableMemoryBytes, HoldsThisProcess) { EXPECT_GT(usable_memory_bytes(), peak_resident_bytes()); }

TEST(FreeMemoryBytes, IsSomeOfTheUsable) {
  EXPECT_GT(free_memory_bytes(), 0);
  EXPECT_LT(free_memory_bytes(), usable_memory_bytes());
}

// A machine of 64 GiB, 60 of them free, as files under a directory.
class FakeMachine {
 public:
  FakeMachine() {
    write("proc/meminfo", "MemTotal:       67108864 kB\nMemFree:  1 kB\nMemAvailable:   62914560 kB\n");
    write("proc/self/mountinfo", "");
  }
  FakeMachine& write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((directory_.path() / name).parent_path());
    directory_.write(name, text);
    return *this;
  }
  // The groups that are mounted as `mounted`, as version 2.
  FakeMachine& version2(const std::string& own, const std::string& mounted = "/") {
    write("proc/self/cgroup", "0::" + own + "\n");
    return write("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n36 35 0:29 " + mounted +
                                            " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
  }
  std::int64_t usable() const { return usable_memory_bytes(directory_.path()); }
  std::int64_t free() const { return free_memory_bytes(directory_.path()); }

 private:
  TestDirectory directory_;
};

TEST(UsableMemoryBytes, SaysWhyItCannotBeRead) {
  const TestDirectory empty;
  EXPECT_TRUE(names(error_text([&] { (void)usable_memory_bytes(empty.path()); }), "meminfo", "No such file"));
}

TEST(ControlGroups, NoneLeaveTheMachinesMemory) {
  const FakeMachine machine;
  EXPECT_EQ(machine.usable(), 64 * kGiB);
  EXPECT_EQ(machine.free(), 60 * kGiB);
}

TEST(ControlGroups, TheLowestOnTheWayUpBinds) {
  FakeMachine machine;
  machine.version2("/slurm/job_7/step_0/task_1")
      .write("sys/fs/cgroup/slurm/memory.max", std::to_string(32 * kGiB))
      .write("sys/fs/cgroup/slurm/memory.current", std::to_string(30 * kGiB))
      .write("sys/fs/cgroup/slurm/memory.stat", "anon 7\ninactive_file " + std::to_string(4 * kGiB) + "\n")
      .write("sys/fs/cgroup/slurm/job_7/memory.max", std::to_string(16 * kGiB))
      .write("sys/fs/cgroup/slurm/job_7/memory.current", std::to_string(1 * kGiB))
      .write("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max")
      .write("sys/fs/cgroup/slurm/job_7/step_0/task_1/memory.max", std::to_string(48 * kGiB))
      .write("sys/fs/cgroup/slurm/job_8/memory.max", std::to_string(1 * kGiB));  // another's
  EXPECT_EQ(machine.usable(), 16 * kGiB);
  EXPECT_EQ(machine.free(), 6 * kGiB);  // of slurm's 32, 30 less 4 of cache are used
  machine.write("sys/fs/cgroup/slurm/job_7/step_0/memory.high", std::to_string(5 * kGiB));
  EXPECT_EQ(machine.usable(), 5 * kGiB);
  EXPECT_EQ(machine.free(), 5 * kGiB);
}

TEST(ControlGroups, AContainersMountIsItsOwnGroup) {
  FakeMachine machine;
  machine.write("sys/fs/cgroup/memory.max", std::to_string(8 * kGiB));
  machine.version2("/");  // a namespace of its own
  EXPECT_EQ(machine.usable(), 8 * kGiB);
  machine.version2("/docker/abc", "/docker/abc");  // none, but no more is mounted
  EXPECT_EQ(machine.usable(), 8 * kGiB);
  machine.version2("/docker/abc/inner", "/docker/abc")
      .write("sys/fs/cgroup/inner/memory.max", std::to_string(2 * kGiB));
  EXPECT_EQ(machine.usable(), 2 * kGiB);
  machine.version2("/../elsewhere");
  EXPECT_EQ(machine.usable(), 8 * kGiB);
}

TEST(ControlGroups, Version1WithItsControllers) {
  FakeMachine machine;
  machine.write("proc/self/cgroup", "9:cpu,cpuacct:/cpu\n5:memory:/slurm/job_7\n0::/user.slice\n")
      .write("proc/self/mountinfo",
             "30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
             "31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
      .write("sys/fs/cgroup/cpu/slurm/job_7/memory.limit_in_bytes", "1")
      .write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
      .write("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", std::to_string(12 * kGiB))
      .write("sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes", std::to_string(5 * kGiB))
      .write("sys/fs/cgroup/memory/slurm/job_7/memory.stat", "total_inactive_file " + std::to_string(kGiB) + "\n");
  EXPECT_EQ(machine.usable(), 12 * kGiB);
  EXPECT_EQ(machine.free(), 8 * kGiB);
}

// Slurm makes a group a user, a job, a step and a task; any of them may have a limit.
TEST(ControlGroups, Version1NestsToo) {
  FakeMachine machine;
  const std::string mount = "sys/fs/cgroup/memory/", job = mount + "slurm/uid_0/job_7/";
  machine.write("proc/self/cgroup", "4:memory:/slurm/uid_0/job_7/step_batch/task_0\n1:name=systemd:/system.slice\n")
      .write("proc/self/mountinfo", "31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
      .write(mount + "memory.limit_in_bytes", "9223372036854771712")
      .write(mount + "slurm/uid_0/memory.limit_in_bytes", std::to_string(40 * kGiB))
      .write(mount + "slurm/uid_0/memory.usage_in_bytes", std::to_string(39 * kGiB))
      .write(job + "memory.limit_in_bytes", std::to_string(20 * kGiB))
      .write(job + "step_batch/memory.limit_in_bytes", std::to_string(24 * kGiB))
      .write(job + "step_batch/task_0/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(machine.usable(), 20 * kGiB);
  EXPECT_EQ(machine.free(), kGiB);  // the user's other jobs have the rest
}

// systemd nests slices, and a scope may have no limit but a throttle; a hybrid has both versions mounted.
TEST(ControlGroups, SystemdsSlicesAndScopes) {
  FakeMachine machine;
  const std::string slice = "sys/fs/cgroup/user.slice/user-1000.slice/";
  machine.version2("/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope")
      .write(slice + "memory.max", std::to_string(30 * kGiB))
      .write(slice + "user@1000.service/app.slice/run-7.scope/memory.max", "max")
      .write(slice + "user@1000.service/app.slice/run-7.scope/memory.high", std::to_string(7 * kGiB));
  EXPECT_EQ(machine.usable(), 7 * kGiB);

  FakeMachine hybrid;
  hybrid.write("proc/self/cgroup", "5:memory:/system.slice/a.service\n0::/system.slice/a.service\n")
      .write("proc/self/mountinfo",
             "31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
             "32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n")
      .write("sys/fs/cgroup/memory/system.slice/memory.limit_in_bytes", std::to_string(9 * kGiB));
  EXPECT_EQ(hybrid.usable(), 9 * kGiB);
}

TEST(ControlGroups, TextThatIsNoNumberBindsNobody) {
  FakeMachine machine;
  machine.version2("/job").write("sys/fs/cgroup/job/memory.max", "lots").write("sys/fs/cgroup/memory.max", "");
  EXPECT_EQ(machine.usable(), 64 * kGiB);
  machine.write("proc/self/cgroup", "nonsense\n0::\n");
  EXPECT_EQ(machine.usable(), 64 * kGiB);
}

TEST(FreeDiskBytes, CountsAFileSystemOnce) {
  const TestDirectory directory;
  const auto a = directory.path() / "a", b = directory.path() / "b";
  std::filesystem::create_directory(a);
  std::filesystem::create_directory(b);
  const auto close_to = [](std::int64_t x, std::int64_t y) { return std::abs(x - y) < y / 4; };  // others write too
  const std::int64_t once = free_disk_bytes({a});
  EXPECT_GT(once, 0);
  EXPECT_TRUE(close_to(free_disk_bytes({a, b, a}), once));
  if (std::filesystem::exists("/dev/shm")) {
    const std::int64_t both = free_disk_bytes({a, "/dev/shm", b}), other = free_disk_bytes({"/dev/shm"});
    const bool same = close_to(both, once) && close_to(both, other);  // where both are one file system
    EXPECT_TRUE(same || close_to(both, once + other));
  }
  EXPECT_EQ(free_disk_bytes({}), 0);
  EXPECT_TRUE(names(error_text([&] {
                      (void)free_disk_bytes({a, directory.path() / "none"});
                    }),
                    "none", "No such file"));
}

TEST(PeakResidentBytes, GrowsWithUse) {
  const auto before = peak_resident_bytes();
  EXPECT_GT(before, 0);
  std::vector<char> memory(static_cast<std::size_t>(before) + (std::size_t{64} << 20), 1);
  EXPECT_GT(peak_resident_bytes(), before);
  EXPECT_EQ(memory.back(), 1);
}

// A report at the end of a run must not fail for it.
TEST(PeakResidentBytesDeathTest, NeedsNoFileHandle) {
  const auto without_files = [] {
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NOFILE, &none) != 0) std::_Exit(2);
    std::_Exit(peak_resident_bytes() > (1 << 20) ? 0 : 1);
  };
  EXPECT_EXIT(without_files(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace zeepo
