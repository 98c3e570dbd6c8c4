// Every single I/O call of a sequence of writes and reads goes wrong in every way: the caller gets an Error that says
// what happened, or the right bytes. Engines and files are closed at once after each, with whatever is in flight.
#include "tests/io/io_test.h"
#include "tests/support/io_faults.h"
#include "zeepo/io/swap_file.h"

namespace zeepo {
namespace {

constexpr std::int64_t kPage = SwapFile::kPageBytes;

class Faults : public EachEngine {
 protected:
  // Writes, reads back, writes other bytes over it, reads back. Throws what went wrong; fails on wrong bytes.
  static void move_bytes(FaultAt& faults, const std::vector<std::filesystem::path>& directories) {
    static const auto a = std::move(AlignedBytes(kPage).fill(1)), b = std::move(AlignedBytes(kPage).fill(2));
    const auto io = engine({.depth = 4, .call_bytes = static_cast<std::size_t>(kPage) / 2, .faults = &faults});
    SwapFile swap(*io, directories, 5 * kPage);
    AlignedBytes x(kPage), y(kPage);
    const auto there_and_back = [&](std::int64_t first, std::int64_t second) {
      {
        auto one = swap.write(first * kPage, a.span()), two = swap.write(second * kPage, b.span());
        one.wait();
        two.wait();
      }
      auto one = swap.read(first * kPage, x.span()), two = swap.read(second * kPage, y.span());
      one.wait();
      two.wait();
      EXPECT_TRUE(x == a);
      EXPECT_TRUE(y == b);
    };
    there_and_back(0, 4);
    there_and_back(4, 3);
  }

  static std::string outcome(FaultAt& faults, const std::vector<std::filesystem::path>& directories) {
    try {
      move_bytes(faults, directories);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
};

INSTANTIATE_TEST_SUITE_P(Engines, Faults, testing::Values(IoBackend::uring, IoBackend::threads), engine_name);

TEST_P(Faults, EndInAClearErrorOrTheRightBytes) {
  const IoDirectory first, second;
  const std::vector<std::filesystem::path> directories{first.path(), second.path()};
  const struct {
    IoFault fault;
    std::vector<std::string> texts;  // one of them is in the error; none: there is no error
  } cases[] = {{IoFault::error, {"Input/output error"}},
               {IoFault::full, {"No space left on device"}},
               {IoFault::refused, {}},
               {IoFault::shortened, {}},
               {IoFault::crooked, {}},
               {IoFault::nothing, {"the file ends there", "the file took no byte"}},
               {IoFault::flipped_bit, {"the disk returned other bytes than were written"}}};
  FaultAt counter(IoFault::none, 0);
  EXPECT_EQ(outcome(counter, directories), "");
  EXPECT_EQ(counter.calls(), 16);
  for (const auto& [fault, texts] : cases)
    for (int k = 0; k < counter.calls(); ++k) {
      FaultAt faults(fault, k);
      const std::string text = outcome(faults, directories);
      EXPECT_TRUE(faults.struck());
      // What was read wrong is read again; what was written wrong stays so.
      bool expected = text.empty() && (texts.empty() || (fault == IoFault::flipped_bit && faults.struck_a_read()));
      for (const std::string& part : texts) expected |= text.find(part) != std::string::npos;
      EXPECT_TRUE(expected) << static_cast<int>(fault) << " at call " << k << ": " << text;
      if (text.empty()) continue;
      EXPECT_TRUE(names(text, "the swap file in ", " bytes at offset "));
    }
}

TEST_P(Faults, APageThatIsReadWrongOnceIsCounted) {
  const IoDirectory directory;
  FaultAt faults(IoFault::flipped_bit, 1);
  const auto io = engine({.faults = &faults});
  SwapFile swap(*io, {directory.path()}, kPage);
  AlignedBytes written(kPage), read(kPage);
  swap.write(0, written.fill(1).span()).wait();
  swap.read(0, read.span()).wait();
  EXPECT_TRUE(read == written);
  EXPECT_EQ(swap.read_again().pages, 1);
  EXPECT_TRUE(names(swap.read_again().last, "the swap file in ", " bytes at offset 0"));
}

TEST_P(Faults, APageWhoseWriteFailedCannotBeRead) {
  const IoDirectory directory;
  FaultAt faults(IoFault::error, 1);
  const auto io = engine({.faults = &faults});
  SwapFile swap(*io, {directory.path()}, kPage);
  AlignedBytes memory(kPage);
  swap.write(0, memory.span()).wait();
  { const auto dropped = swap.write(0, memory.fill(1).span()); }  // nobody hears of it here
  const std::string text = error_text([&] { swap.read(0, memory.span()).wait(); });
  EXPECT_TRUE(names(text, "its last write failed"));
  swap.write(0, memory.span()).wait();
  swap.read(0, memory.span()).wait();
}

}  // namespace
}  // namespace zeepo
