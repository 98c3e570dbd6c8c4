#include "zeepo/io/engine.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <thread>
#include <vector>

#include "tests/io/io_test.h"
#include "tests/support/io_faults.h"
#include "tests/support/refused_threads.h"

namespace zeepo {
namespace {

TEST(EngineDeathTest, EndsInAnErrorWhenAThreadIsRefused) {
  EXPECT_REFUSED([] { make_io_engine({.backend = IoBackend::threads}); },
                 "cannot start a thread for file I/O, one of 16: .*ulimit -u");
  const auto uring = [] { make_io_engine({.backend = IoBackend::uring}); };
  EXPECT_EXIT(exit_with_refusal(0, uring), testing::ExitedWithCode(kRefused), "io_uring");
}

class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : file_{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600), path.string()} {
    if (file_.descriptor < 0) throw Error("cannot open {}", path.string());
  }
  ~OpenFile() { ::close(file_.descriptor); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  operator const IoFile&() const { return file_; }

 private:
  IoFile file_;
};

class IoEngineTest : public EachEngine {
 protected:
  IoDirectory directory_;
  OpenFile file_{directory_.path() / "file"};
};

INSTANTIATE_TEST_SUITE_P(Engines, IoEngineTest, testing::Values(IoBackend::uring, IoBackend::threads), engine_name);

TEST_P(IoEngineTest, MovesAnySizeAtAnyOffset) {
  const auto io = engine({.depth = 2, .call_bytes = 4096});
  for (const std::size_t bytes : {1, 4095, 4096, 4097, 100'000}) {
    const auto written = std::move(AlignedBytes(bytes).fill(bytes));
    AlignedBytes read(bytes);
    io->write(file_, 77, written.span()).wait();
    auto completion = io->read(file_, 77, read.span());
    completion.wait();
    EXPECT_TRUE(completion.done());
    EXPECT_TRUE(read == written) << bytes;
  }
  io->read(file_, 0, {}).wait();
}

TEST_P(IoEngineTest, SeveralTransfersHaveOneCompletion) {
  const auto io = engine();
  OpenFile other(directory_.path() / "other");
  const auto a = std::move(AlignedBytes(5000).fill(1)), b = std::move(AlignedBytes(3000).fill(2));
  const std::vector<IoTransfer> both{{&static_cast<const IoFile&>(file_), 10, a.span()},
                                     {&static_cast<const IoFile&>(other), 20, b.span()}};
  io->submit(IoDirection::write, both).wait();
  AlignedBytes x(5000), y(3000);
  io->read(file_, 10, x.span()).wait();
  io->read(other, 20, y.span()).wait();
  EXPECT_TRUE(x == a);
  EXPECT_TRUE(y == b);
}

TEST_P(IoEngineTest, TakesWorkFromManyThreadsAtOnce) {
  const auto io = engine({.depth = 8, .call_bytes = 8192});
  constexpr int kThreads = 4;
  constexpr std::size_t kBytes = 50'000;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  std::vector<int> wrong(kThreads);
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const auto at = static_cast<std::int64_t>(t * 2 * kBytes);
      for (int round = 0; round < 20; ++round) {
        const auto first = std::move(AlignedBytes(kBytes).fill(t * 100 + round));
        const auto second = std::move(AlignedBytes(kBytes).fill(t * 100 + round + 50));
        auto one = io->write(file_, at, first.span());
        auto two = io->write(file_, at + kBytes, second.span());
        two.wait();
        one.wait();
        AlignedBytes x(kBytes), y(kBytes);
        auto three = io->read(file_, at, x.span());
        io->read(file_, at + kBytes, y.span()).wait();
        three.wait();
        wrong[t] += !(x == first) + !(y == second);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(kThreads));
}

TEST_P(IoEngineTest, WorkOutlivesTheThreadThatSubmittedIt) {
  const auto io = engine();
  const auto written = std::move(AlignedBytes(8U << 20).fill(3));
  AlignedBytes read(8U << 20);
  IoCompletion completion;
  std::thread([&] { completion = io->write(file_, 0, written.span()); }).join();
  completion.wait();
  std::thread([&] { completion = io->read(file_, 0, read.span()); }).join();
  completion.wait();
  EXPECT_TRUE(read == written);
}

TEST_P(IoEngineTest, ADroppedCompletionHasBeenWaitedFor) {
  const auto io = engine({.depth = 1, .call_bytes = 4096});
  const auto written = std::move(AlignedBytes(300'000).fill(4));
  { const auto dropped = io->write(file_, 0, written.span()); }
  AlignedBytes read(300'000);
  auto completion = io->read(file_, 0, read.span());
  completion = {};
  EXPECT_TRUE(read == written);
}

TEST_P(IoEngineTest, ErrorsNameFileOffsetSizeAndCause) {
  const auto io = engine();
  const auto memory = std::move(AlignedBytes(10'000).fill(5));
  io->write(file_, 0, memory.span()).wait();
  const std::string name = static_cast<const IoFile&>(file_).name;
  EXPECT_EQ(error_text([&] { io->read(file_, 4096, memory.span()).wait(); }),
            "cannot read " + name + ": 4096 bytes at offset 10000: the file ends there");
  const IoFile closed{-1, "nowhere"};
  EXPECT_EQ(error_text([&] { io->write(closed, 512, memory.span().first(9)).wait(); }),
            "cannot write nowhere: 9 bytes at offset 512: Bad file descriptor");
  { const auto dropped = io->write(closed, 0, memory.span()); }
  io->read(file_, 0, memory.span()).wait();  // the engine is none the worse for it
}

TEST_P(IoEngineTest, RegisteredMemoryGivesTheSameBytes) {
  const auto io = engine({.call_bytes = 8192});
  AlignedBytes arena(100'000);
  io->register_memory(arena.span().subspan(10'000, 50'000));
  const auto written = std::move(AlignedBytes(60'000).fill(6));
  io->write(file_, 0, written.span()).wait();
  for (const std::size_t at : {0, 5'000, 10'000, 20'000, 40'000}) {  // outside, across either end, inside
    const auto part = arena.span().subspan(at, 40'000);
    std::memset(part.data(), 0, part.size());
    io->read(file_, 100, part).wait();
    EXPECT_EQ(std::memcmp(part.data(), written.span().data() + 100, part.size()), 0) << at;
  }
  EXPECT_TRUE(names(error_text([&] { io->register_memory(arena.span()); }), "only once"));
}

TEST_P(IoEngineTest, SeveralRangesMayBeRegistered) {
  const auto io = engine({.call_bytes = 8192});
  AlignedBytes arena(100'000);
  const std::vector<std::span<std::byte>> ranges{arena.span().subspan(60'000, 20'000), arena.span().first(20'000),
                                                 arena.span().subspan(20'000, 10'000)};
  io->register_ranges(ranges);
  const auto written = std::move(AlignedBytes(60'000).fill(6));
  io->write(file_, 0, written.span()).wait();
  for (const std::size_t at : {0, 15'000, 25'000, 55'000, 60'000, 75'000}) {  // within one, across two, partly outside
    const auto part = arena.span().subspan(at, 20'000);
    std::memset(part.data(), 0, part.size());
    io->read(file_, 100, part).wait();
    EXPECT_EQ(std::memcmp(part.data(), written.span().data() + 100, part.size()), 0) << at;
    io->write(file_, 0, part).wait();
    AlignedBytes back(20'000);
    io->read(file_, 0, back.span()).wait();
    EXPECT_EQ(std::memcmp(back.span().data(), part.data(), part.size()), 0) << at;
    io->write(file_, 0, written.span()).wait();
  }
}

TEST_P(IoEngineTest, AskedAgainForeverItGivesUp) {
  struct Refuse final : IoFaults {
    std::size_t ask(const IoCall& call) override { return call.memory.size(); }
    int answer(const IoCall&, int) override { return -EAGAIN; }
  } refuse;
  const auto io = engine({.faults = &refuse});
  const auto memory = std::move(AlignedBytes(4096).fill(7));
  EXPECT_TRUE(names(error_text([&] { io->write(file_, 0, memory.span()).wait(); }), std::strerror(EAGAIN)));
}

TEST(MakeIoEngine, RefusesOptionsOutOfRange) {
  EXPECT_EQ(error_text([] { make_io_engine({.depth = 0}); }), "I/O engine: depth 0: must be from 1 to 4096");
  EXPECT_EQ(error_text([] { make_io_engine({.threads = -1}); }), "I/O engine: threads -1: must be from 1 to 256");
  EXPECT_TRUE(names(error_text([] { make_io_engine({.call_bytes = 5000}); }), "multiple of 4096"));
}

TEST(MakeIoEngine, NamesTheEngine) {
  EXPECT_EQ(make_io_engine({.backend = IoBackend::threads, .threads = 3})->name(), "3 threads (asked for)");
}

// Containers refuse io_uring with a filter like this one. It holds for the thread that sets it and those it starts.
bool refuse_io_uring() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(code), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(MakeIoEngine, TakesThreadsWhereIoUringIsRefusedAndSaysWhy) {
  std::thread([] {
    if (!refuse_io_uring()) GTEST_SKIP() << "no filter of system calls here: " << std::strerror(errno);
    const auto io = make_io_engine();
    EXPECT_EQ(io->name().find("16 threads ("), 0) << io->name();
    EXPECT_TRUE(names(io->name(), "io_uring"));
    EXPECT_TRUE(names(error_text([] { make_io_engine({.backend = IoBackend::uring}); }), "io_uring"));
    const IoDirectory directory;
    const OpenFile file(directory.path() / "file");
    const auto written = std::move(AlignedBytes(5000).fill(8));
    AlignedBytes read(5000);
    io->write(file, 0, written.span()).wait();
    io->read(file, 0, read.span()).wait();
    EXPECT_TRUE(read == written);
  }).join();
}

}  // namespace
}  // namespace zeepo
