// Asynchronous reads and writes of files: many in flight at once, from any thread.
//
// submit() hands transfers over and returns at once. They are cut into calls, which are in flight together in no
// particular order; a short one is resumed, and every result is read. Two engines do this: uring/ and threads/. The
// engine must outlive its completions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "zeepo/io/completion.h"

namespace zeepo {

class IoFaults;

// What O_DIRECT asks of offset, length and memory.
inline constexpr std::size_t kDirectAlignment = 4096;

// Borrowed: who opened it closes it.
struct IoFile {
  int descriptor = -1;
  std::string name;     // as errors give it
  bool direct = false;  // opened with O_DIRECT
};

enum class IoDirection { read, write };

// A write does not change the memory.
struct IoTransfer {
  const IoFile* file = nullptr;
  std::int64_t offset = 0;
  std::span<std::byte> memory;
};

class IoEngine {
 public:
  virtual ~IoEngine() = default;

  // Which engine and, where it is not the one that was wished for, why: for the log.
  virtual std::string name() const = 0;

  // Tells the engine where most transfers will read and write, once. io_uring then holds this memory for good (it
  // becomes resident) and does not look it up at each transfer; where the kernel refuses, name() says so and transfers
  // work as before. The memory must outlive the engine. Throws Error when called again.
  void register_memory(std::span<std::byte> memory) { register_ranges({&memory, 1}); }
  virtual void register_ranges(std::span<const std::span<std::byte>> ranges) = 0;

  // One completion for all of them.
  virtual IoCompletion submit(IoDirection direction, std::span<const IoTransfer> transfers) = 0;

  IoCompletion read(const IoFile& file, std::int64_t offset, std::span<std::byte> memory);
  IoCompletion write(const IoFile& file, std::int64_t offset, std::span<const std::byte> memory);
};

enum class IoBackend { automatic, uring, threads };

struct IoOptions {
  IoBackend backend = IoBackend::automatic;
  int depth = 64;                     // calls in flight with io_uring
  int threads = 16;                   // calls in flight with threads
  std::size_t call_bytes = 1U << 20;  // a multiple of kDirectAlignment
  IoFaults* faults = nullptr;         // for tests; must outlive the engine
};

// io_uring where this build has it and the kernel allows it, else threads. Throws Error for options out of range, or
// when io_uring was asked for and cannot be had.
std::unique_ptr<IoEngine> make_io_engine(const IoOptions& options = {});

// In uring/ or no_uring/, whichever CMake has picked. Throws Error with the reason when io_uring cannot be had.
std::unique_ptr<IoEngine> make_uring_engine(const IoOptions& options);

}  // namespace zeepo
