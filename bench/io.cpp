// The bandwidth of a swap file, with its checksums, beside fio's in the same directory: `bench_io [DIRECTORY]`, by
// default the current one.
//
// fio does the same in the same run: O_DIRECT, io_uring with registered buffers in huge pages, as many requests of the
// same size in flight, over a file of the same size. The two take turns, because disks are noisy, and the share is the
// median of the turns' own. Mixed is half reads, half writes; the swap file reads one half of itself while it writes
// the other. Huge pages matter: a request of scattered small pages is cut into several, and into how many is chance.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/io/swap_file.h"

namespace zeepo {
namespace {

constexpr std::int64_t kFileBytes = std::int64_t{2} << 30;
constexpr std::int64_t kRegionBytes = 4 << 20;  // what one call moves
constexpr int kRegionsInFlight = 32;
constexpr int kTurns = 7;
constexpr std::size_t kHugePage = 2 << 20;
const IoOptions kOptions{};

enum class Work { read, write, mixed };

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};

class Memory {
 public:
  Memory() : data_(static_cast<std::byte*>(std::aligned_alloc(kHugePage, kBytes))) {
    if (!data_) throw std::bad_alloc();
    ::madvise(data_.get(), kBytes, MADV_HUGEPAGE);  // a kernel without them gives small ones
    for (std::size_t i = 0; i < kBytes; ++i) data_.get()[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  }
  std::span<std::byte> all() const { return {data_.get(), kBytes}; }
  std::span<std::byte> region(std::size_t i) const { return all().subspan(i * kRegionBytes, kRegionBytes); }

 private:
  static constexpr std::size_t kBytes = kRegionBytes * kRegionsInFlight;
  std::unique_ptr<std::byte, Free> data_;
};

class Swap {
 public:
  Swap(const std::filesystem::path& directory, IoBackend backend, const Memory& memory)
      : memory_(memory),
        engine_(make_io_engine({.backend = backend, .depth = kOptions.depth})),
        swap_(*engine_, {directory}, kFileBytes) {
    engine_->register_memory(memory.all());
    gigabytes_per_second(Work::write);  // a block is slower to write for the first time
  }

  std::string description() const { return swap_.description(); }

  double gigabytes_per_second(Work work) {
    const auto start = std::chrono::steady_clock::now();
    {
      std::vector<IoCompletion> in_flight(kRegionsInFlight);
      for (std::int64_t i = 0; i < kFileBytes / kRegionBytes; ++i) {
        const auto turn = static_cast<std::size_t>(i % kRegionsInFlight);
        in_flight[turn].wait();
        const auto memory = memory_.region(turn);
        const bool writes = work == Work::write || (work == Work::mixed && i % 2 == 1);
        const std::int64_t region = work == Work::mixed ? i / 2 + (writes ? kFileBytes / kRegionBytes / 2 : 0) : i;
        in_flight[turn] =
            writes ? swap_.write(region * kRegionBytes, memory) : swap_.read(region * kRegionBytes, memory);
      }
      for (IoCompletion& completion : in_flight) completion.wait();
    }
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    return static_cast<double>(kFileBytes) / time.count() / 1e9;
  }

 private:
  const Memory& memory_;
  std::unique_ptr<IoEngine> engine_;
  SwapFile swap_;
};

class Fio {
 public:
  explicit Fio(const std::filesystem::path& directory) : file_(directory / fmt::format("fio-{}", ::getpid())) {}
  ~Fio() {
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);
  }
  Fio(const Fio&) = delete;
  Fio& operator=(const Fio&) = delete;

  static bool installed() { return std::system("command -v fio >/dev/null") == 0; }

  double gigabytes_per_second(Work work) const {
    const char* pattern = work == Work::read ? "read" : work == Work::write ? "write" : "rw";
    const std::string output =
        run(fmt::format("GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --mem=malloc --name=peer --filename='{}' --size={} "
                        "--bs={} --iodepth={} --ioengine=io_uring --fixedbufs=1 "
                        "--direct=1 --rw={} --output-format=json",
                        file_.string(), kFileBytes, kOptions.call_bytes, kOptions.depth, pattern));
    const auto job = nlohmann::json::parse(output.substr(output.find('{'))).at("jobs").at(0);
    // Bytes over the time from first to last; the two bandwidths of fio are over the same time.
    const double bytes = job.at("read").at("io_bytes").get<double>() + job.at("write").at("io_bytes").get<double>();
    const double milliseconds =
        std::max(job.at("read").at("runtime").get<double>(), job.at("write").at("runtime").get<double>());
    return bytes / milliseconds / 1e6;
  }

 private:
  static std::string run(const std::string& command) {
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
    if (!pipe) throw Error("cannot run {}", command);
    std::string output;
    char part[4096];
    while (const std::size_t n = std::fread(part, 1, sizeof part, pipe.get())) output.append(part, n);
    if (output.find('{') == std::string::npos) throw Error("no result from {}", command);
    return output;
  }

  std::filesystem::path file_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const std::filesystem::path& directory) {
  const Memory memory;
  Swap uring(directory, IoBackend::automatic, memory), threads(directory, IoBackend::threads, memory);
  fmt::print("{}\n{}\n", uring.description(), threads.description());
  std::optional<Fio> fio;
  if (Fio::installed())
    fio.emplace(directory);
  else
    fmt::print("no fio on this machine: nothing to compare with\n");
  if (fio) fio->gigabytes_per_second(Work::write);
  fmt::print("\nmedian of {} turns of 2 GiB, GB/s\n\n", kTurns);
  fmt::print(
      "| | fio | swap file, default engine | of fio | swap file, threads | of fio |\n|---|---|---|---|---|---|\n");
  for (const auto& [work, name] : {std::pair(Work::read, "read"), {Work::write, "write"}, {Work::mixed, "mixed"}}) {
    std::vector<double> a, b, peer;
    for (int turn = 0; turn < kTurns; ++turn) {
      peer.push_back(fio ? fio->gigabytes_per_second(work) : 0);
      a.push_back(uring.gigabytes_per_second(work));
      b.push_back(threads.gigabytes_per_second(work));
    }
    const auto share = [&](std::vector<double> x) -> std::string {
      if (!fio) return "-";
      for (std::size_t turn = 0; turn < x.size(); ++turn) x[turn] /= peer[turn];
      return fmt::format("{:.0f}%", 100 * median(x));
    };
    fmt::print("| {} | {:.2f} | {:.2f} | {} | {:.2f} | {} |\n", name, median(peer), median(a), share(a), median(b),
               share(b));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace zeepo

int main(int argc, char** argv) {
  try {
    zeepo::measure(argc > 1 ? argv[1] : ".");
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_io: {}\n", error.what());
    return 1;
  }
}
