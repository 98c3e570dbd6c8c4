#include "zeepo/device/mapped_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"

namespace zeepo {
namespace {

class CpuMapped final : public MappedMemory {
 public:
  ~CpuMapped() override {
    for (const Range& range : ranges_) ::munmap(range.begin, range.bytes);
    for (const int file : pieces_) ::close(file);
  }

  std::size_t granularity() const override { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

  std::byte* reserve(std::size_t bytes) override {
    void* const at = ::mmap(nullptr, bytes, PROT_NONE, kAddresses, -1, 0);
    if (at == MAP_FAILED)
      throw Error("memory: {} of addresses are not to be had: {}", format_size(static_cast<std::int64_t>(bytes)),
                  std::strerror(errno));
    ranges_.push_back({at, bytes});
    return static_cast<std::byte*>(at);
  }

  std::size_t take(std::size_t bytes) override {
    pieces_.reserve(pieces_.size() + 1);
    const int file = ::memfd_create("zeepo", MFD_CLOEXEC);
    if (file < 0) throw Error("memory: no memory file: {}", std::strerror(errno));
    pieces_.push_back(file);
    if (::ftruncate(file, static_cast<off_t>(bytes)) != 0)
      throw Error("memory: {} more are not to be had: {}", format_size(static_cast<std::int64_t>(bytes)),
                  std::strerror(errno));
    return pieces_.size() - 1;
  }

  void map(std::byte* at, std::size_t bytes, std::size_t piece) override {
    constexpr int kFlags = MAP_SHARED | MAP_FIXED | MAP_POPULATE;
    if (::mmap(at, bytes, PROT_READ | PROT_WRITE, kFlags, pieces_[piece], 0) == MAP_FAILED)
      throw Error("memory: {} cannot be mapped: {}", format_size(static_cast<std::int64_t>(bytes)),
                  std::strerror(errno));
  }

  void unmap(std::byte* at, std::size_t bytes) noexcept override {
    (void)::mmap(at, bytes, PROT_NONE, kAddresses | MAP_FIXED, -1, 0);
  }

 private:
  static constexpr int kAddresses = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  struct Range {
    void* begin;
    std::size_t bytes;
  };
  std::vector<Range> ranges_;
  std::vector<int> pieces_;
};

}  // namespace

std::unique_ptr<MappedMemory> make_mapped_memory(CpuStream&) { return std::make_unique<CpuMapped>(); }

}  // namespace zeepo
