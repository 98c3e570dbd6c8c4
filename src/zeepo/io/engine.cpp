#include "zeepo/io/engine.h"

#include "zeepo/base/error.h"
#include "zeepo/io/threads/threads_engine.h"

namespace zeepo {
namespace {

void check(const IoOptions& options) {
  const auto in_range = [](const char* what, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most) throw Error("I/O engine: {} {}: must be from 1 to {}", what, value, most);
  };
  in_range("depth", options.depth, 4096);
  in_range("threads", options.threads, 256);
  in_range("call_bytes", static_cast<std::int64_t>(options.call_bytes), std::int64_t{1} << 30);
  if (options.call_bytes % kDirectAlignment != 0)
    throw Error("I/O engine: call_bytes {}: must be a multiple of {}", options.call_bytes, kDirectAlignment);
}

}  // namespace

IoCompletion IoEngine::read(const IoFile& file, std::int64_t offset, std::span<std::byte> memory) {
  const IoTransfer transfer{&file, offset, memory};
  return submit(IoDirection::read, {&transfer, 1});
}

IoCompletion IoEngine::write(const IoFile& file, std::int64_t offset, std::span<const std::byte> memory) {
  const IoTransfer transfer{&file, offset, {const_cast<std::byte*>(memory.data()), memory.size()}};
  return submit(IoDirection::write, {&transfer, 1});
}

std::unique_ptr<IoEngine> make_io_engine(const IoOptions& options) {
  check(options);
  if (options.backend == IoBackend::uring) return make_uring_engine(options);
  std::string why = "asked for";
  if (options.backend == IoBackend::automatic) {
    try {
      return make_uring_engine(options);
    } catch (const Error& refused) {
      why = refused.what();
    }
  }
  return std::make_unique<ThreadsEngine>(options, why);
}

}  // namespace zeepo
