#include "zeepo/probe/measure.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "zeepo/base/error.h"
#include "zeepo/base/start_thread.h"
#include "zeepo/device/copy_lane.h"
#include "zeepo/device/memory.h"
#include "zeepo/io/swap_file.h"
#include "zeepo/kernels/attention.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/kernels/matmul.h"
#include "zeepo/tensor/tensor.h"
#include "zeepo/train/option_values.h"
#include "zeepo/train/step_probe.h"
#include "zeepo/zero/agreement.h"
#include "zeepo/zero/session.h"
#include "zeepo/zero/state_layout.h"

namespace zeepo {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMiB = 1 << 20;
constexpr double kSeconds = 0.25;  // that one figure is measured for, at least

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// A processor does other work besides, which slows some parts of a measurement and hastens none: of these parts the
// second fastest counts. A GPU is the rank's own, and slows itself as it warms: all of it counts.
constexpr int kParts = 5;
int parts_on(Backend backend) { return backend == Backend::cpu ? kParts : 1; }
double least_disturbed(std::vector<double> rates) {
  std::ranges::sort(rates, std::greater());
  return rates[std::min<std::size_t>(1, rates.size() - 1)];
}

// How much of it a second: once to warm up, then again and again.
double rate_of(int parts, double amount, const std::function<void()>& work) {
  work();
  std::vector<double> rates;
  for (int part = 0; part < parts; ++part) {
    const auto start = Clock::now();
    double done = 0;
    do {
      work();
      done += amount;
    } while (seconds_since(start) < kSeconds / parts);
    rates.push_back(done / seconds_since(start));
  }
  return least_disturbed(std::move(rates));
}
double rate_of(double amount, const std::function<void()>& work) { return rate_of(1, amount, work); }

// The same for what all ranks must do equally often: the count of a first trial, agreed on.
double rate_of_all(Communicator& communicator, double amount, const std::function<void()>& work) {
  work();
  const auto trial = Clock::now();
  work();
  const double one = std::max(1e-6, seconds_since(trial));
  int rounds = 1;  // of each part
  for (const std::string& text :
       gather_texts(communicator, fmt::format("{}", std::clamp(static_cast<int>(kSeconds / kParts / one), 1, 2000))))
    rounds = std::max(rounds, std::atoi(text.c_str()));
  std::vector<double> rates;
  for (int part = 0; part < kParts; ++part) {
    const auto start = Clock::now();
    for (int i = 0; i < rounds; ++i) work();
    rates.push_back(rounds * amount / seconds_since(start));
  }
  return least_disturbed(std::move(rates));
}

// The least of all ranks': they wait for each other.
double slowest(Communicator& communicator, double rate) {
  for (const std::string& text : gather_texts(communicator, fmt::format("{}", rate)))
    rate = std::min(rate, std::strtod(text.c_str(), nullptr));
  return rate;
}

// Chance, as weights are: a GPU takes more power for it than for one number everywhere, and is slower.
void fill_by_chance(const Tensor& tensor) {
  constexpr std::int64_t kDrawn = 1 << 18;
  std::vector<float> values(static_cast<std::size_t>(kDrawn));
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-36F;
  }
  const Tensor drawn = Tensor::from<float>(values, {kDrawn}, Kind::working);
  for (std::int64_t at = 0; at < tensor.elements(); at += kDrawn) {
    const std::int64_t count = std::min(kDrawn, tensor.elements() - at);
    launch([&](auto& stream) { copy(stream, part_of(drawn.view(), 0, count), part_of(tensor.view(), at, count)); });
  }
}

// The three products of a layer in training: forward, and backward for its input and its weight.
double matmul_flops(Session& session, DType dtype) {
  const bool gpu = session.compute().backend() == Backend::cuda;
  const std::int64_t rows = gpu ? 8192 : 256, side = gpu ? 8192 : 768;
  const Tensor x({rows, side}, dtype), y({rows, side}, dtype), out({rows, side}, dtype), weight({side, side}, dtype),
      sum({side, side}, dtype);
  for (const Tensor* tensor : {&x, &y, &weight}) fill_by_chance(*tensor);
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(side) * static_cast<double>(side);
  return rate_of(parts_on(session.compute().backend()), 3 * flops, [&] {
    launch([&](auto& stream) {
      matmul(stream, x.view(), weight.view(), out.view(), {.b = Transpose::yes});
      matmul(stream, y.view(), weight.view(), out.view());
      matmul(stream, y.view(), x.view(), sum.view(), {.a = Transpose::yes});
    });
    session.compute().synchronize();
  });
}

double attention_flops(Session& session) {
  const bool gpu = session.compute().backend() == Backend::cuda;
  const std::int64_t batch = gpu ? 4 : 1, rows = gpu ? 2048 : 512, heads = gpu ? 16 : 4, width = gpu ? 128 : 64;
  const Shape shape{batch, rows, heads * width};
  const DType dtype = gpu ? DType::bf16 : DType::f32;
  const Tensor x(shape, dtype), y(shape, dtype);
  fill_by_chance(x);
  const Heads in = heads_of(x.view(), 0, heads, width), out = heads_of(y.view(), 0, heads, width);
  const double pairs = static_cast<double>(rows) * static_cast<double>(rows + 1) / 2;
  return rate_of(parts_on(session.compute().backend()), 4 * pairs * static_cast<double>(batch * heads * width), [&] {
    launch([&](auto& stream) { attention(stream, in, in, in, out, View{}, {.scale = 0.1F}); });
    session.compute().synchronize();
  });
}

double device_memory_rate(Session& session) {
  const std::int64_t elements = session.compute().backend() == Backend::cuda ? 128 << 20 : 4 << 20;
  const Tensor x({elements}, DType::f32), y({elements}, DType::f32);
  launch([&](auto& stream) { fill(stream, x.view(), 0.5F); });
  return rate_of(parts_on(session.compute().backend()), 2.0 * sizeof(float) * static_cast<double>(elements), [&] {
    launch([&](auto& stream) { copy(stream, x.view(), y.view()); });
    session.compute().synchronize();
  });
}

double kernel_seconds(Session& session) {
  constexpr int kKernels = 1000;
  const Tensor x({64}, DType::f32);
  return 1 / rate_of(parts_on(session.compute().backend()), kKernels, [&] {
           for (int i = 0; i < kKernels; ++i) launch([&](auto& stream) { scale(stream, x.view(), 1, x.view()); });
           session.compute().synchronize();
         });
}

// a = b + s c over more than caches hold; counted are the bytes that are read and written.
double triad(ThreadPool& pool) {
  constexpr std::int64_t kPieces = 64, kElements = 8 << 20;
  std::vector<float> a(kElements, 1.F), b(kElements, 2.F), c(kElements, 3.F);
  return rate_of(kParts, 3.0 * sizeof(float) * kElements, [&] {
    pool.run(kPieces, [&](std::int64_t piece) {
      constexpr std::int64_t kOfPiece = kElements / kPieces;
      float* to = a.data() + piece * kOfPiece;
      const float *from = b.data() + piece * kOfPiece, *scaled = c.data() + piece * kOfPiece;
      for (std::int64_t i = 0; i < kOfPiece; ++i) to[i] = from[i] + 0.5F * scaled[i];
    });
  });
}

MachineRates::Link links(Stream& compute) {
  constexpr std::size_t kBytes = 32 * kMiB;
  MemoryRange host, device;
  std::unique_ptr<CopyLane> up, down;
  dispatch(compute, [&](auto& stream) {
    host = transfer_memory(stream, "host", 2 * kBytes);
    device = device_memory(stream, "device", 2 * kBytes);
    up = make_copy_lane(stream);
    down = make_copy_lane(stream);
  });
  std::memset(host.data(), 1, 2 * kBytes);
  const auto bytes = static_cast<double>(kBytes);
  const auto send_up = [&] { up->copy(host.data(), device.data(), kBytes); };
  const auto send_down = [&] { down->copy(device.data() + kBytes, host.data() + kBytes, kBytes); };
  const int parts = parts_on(compute.backend());
  MachineRates::Link link{rate_of(parts, bytes, send_up), rate_of(parts, bytes, send_down), 0};
  std::array<double, 2> both{};
  std::exception_ptr failure;
  {
    const auto other = start_thread<std::jthread>("measuring the link", [&] {
      try {
        both[0] = rate_of(bytes, send_up);
      } catch (...) {
        failure = std::current_exception();
      }
    });
    both[1] = rate_of(bytes, send_down);
  }
  if (failure) std::rethrow_exception(failure);
  link.both = std::min(both[0], both[1]);
  return link;
}

struct Freed {
  void operator()(std::byte* p) const { std::free(p); }
};
using AlignedBytes = std::unique_ptr<std::byte, Freed>;

AlignedBytes aligned_bytes(std::size_t bytes) {
  AlignedBytes memory(static_cast<std::byte*>(std::aligned_alloc(2 * kMiB, bytes)));
  if (!memory) throw std::bad_alloc();
  for (std::size_t i = 0; i < bytes; ++i) memory.get()[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  return memory;
}

constexpr std::int64_t kFileBytes = 256 << 20, kRegionBytes = 4 << 20;

// As swap files are moved: past the page cache where the file system can, with checksums.
void measure_direct(const std::vector<std::filesystem::path>& paths, MachineRates::Files& files) {
  constexpr std::size_t kInFlight = 16;
  const AlignedBytes memory = aligned_bytes(kInFlight * kRegionBytes);
  const auto engine = make_io_engine({});
  SwapFile swap(*engine, paths, kFileBytes);
  const auto move = [&](bool writes) {
    std::vector<IoCompletion> in_flight(kInFlight);
    for (std::int64_t at = 0; at < kFileBytes; at += kRegionBytes) {
      const auto turn = static_cast<std::size_t>(at / kRegionBytes) % kInFlight;
      in_flight[turn].wait();
      const std::span region(memory.get() + turn * kRegionBytes, static_cast<std::size_t>(kRegionBytes));
      in_flight[turn] = writes ? swap.write(at, region) : swap.read(at, region);
    }
    for (IoCompletion& completion : in_flight) completion.wait();
  };
  files.write = rate_of(kFileBytes, [&] { move(true); });
  files.read = rate_of(kFileBytes, [&] { move(false); });
}

void measure_cached(const std::filesystem::path& directory, MachineRates::Files& files) {
  const AlignedBytes memory = aligned_bytes(kRegionBytes);
  const UnnamedFile file(directory, kFileBytes, "a file of the probe");
  const int descriptor = file.file().descriptor;
  if (const int flags = ::fcntl(descriptor, F_GETFL); flags < 0 || ::fcntl(descriptor, F_SETFL, flags & ~O_DIRECT) < 0)
    throw Error("probe: --nvme-path {}: cannot use the page cache: {}", directory.string(), std::strerror(errno));
  const auto move = [&](auto call, const char* what) {
    for (std::int64_t at = 0; at < kFileBytes; at += kRegionBytes)
      if (call(descriptor, memory.get(), static_cast<std::size_t>(kRegionBytes), at) != kRegionBytes)
        throw Error("probe: --nvme-path {}: cannot {} a file: {}", directory.string(), what, std::strerror(errno));
  };
  files.cached_write = rate_of(kFileBytes, [&] { move(&::pwrite, "write"); });
  files.cached_read = rate_of(kFileBytes, [&] { move(&::pread, "read"); });
}

MachineRates::Collectives collectives(Session& session, ThreadPool& pool) {
  Communicator& communicator = session.communicator();
  const std::int64_t ranks = communicator.size(), shard = (16 << 20) / ranks;
  std::vector<float> full(static_cast<std::size_t>(shard * ranks), 1.F), scratch(full), one(1, 1.F);
  const View whole{full.data(), DType::f32, {shard * ranks}}, other{scratch.data(), DType::f32, {shard * ranks}};
  const View part{full.data() + shard * communicator.rank(), DType::f32, {shard}};
  CpuStream stream(pool);
  const auto sent = static_cast<double>(sent_of(full.size() * sizeof(float), communicator.size()));
  MachineRates::Collectives rates;
  rates.all_gather =
      rate_of_all(communicator, sent, [&] { communicator.all_gather(stream, part, whole, {"probe: all-gather"}); });
  rates.reduce_scatter = rate_of_all(
      communicator, sent, [&] { communicator.reduce_scatter(stream, whole, other, part, {"probe: reduce-scatter"}); });
  rates.all_reduce_seconds = 1 / rate_of_all(communicator, 1, [&] {
                               communicator.all_reduce(stream, {one.data(), DType::f32, {1}}, {"probe: all-reduce"});
                             });
  return rates;
}

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

}  // namespace

std::string machine_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "this machine";
  return name.data();
}

MachineRates measure_machine(const ProbeOptions& options, const GpuPlace& place, Communicator& communicator) {
  MachineRates rates;
  rates.date = now();
  rates.machine = machine_name();
  rates.backend = options.backend;
  rates.ranks = communicator.size();
  rates.ranks_on_node = communicator.local_size();
  rates.threads = choose_threads(options.threads, communicator.local_size());
  const bool gpu = options.backend == Backend::cuda;
  Session::Options tiers;
  tiers.backend = options.backend;
  tiers.gpu = place.gpu;
  tiers.threads = options.threads;
  tiers.device_bytes = static_cast<std::int64_t>((gpu ? 2048 : 64) * kMiB);
  tiers.ranks_on_node = communicator.local_size();
  tiers.lower.host_bytes = static_cast<std::int64_t>(64 * kMiB);
  Session session(tiers, communicator);
  ThreadPool& pool = *session.pool();
  const auto of_all = [&](double rate) { return slowest(communicator, rate); };
  for (const DType dtype : {DType::f32, DType::bf16})
    rates.matmul_flops[std::string(name_of(dtype))] = of_all(matmul_flops(session, dtype));
  rates.attention_flops = of_all(attention_flops(session));
  rates.device_memory = of_all(device_memory_rate(session));
  rates.kernel_seconds = 1 / of_all(1 / kernel_seconds(session));
  rates.host_memory = of_all(triad(pool));
  rates.link = links(session.compute());
  for (double* rate : {&rates.link.up, &rates.link.down, &rates.link.both}) *rate = of_all(*rate);
  rates.host_steps =
      of_all(measure_step_rates(communicator, session.compute(), rates.threads, {}).host_elements_per_second);
  if (!options.nvme_paths.empty()) {
    MachineRates::Files files;
    files.path = zeepo::text_of(options.nvme_paths);
    measure_direct(options.nvme_paths, files);
    measure_cached(options.nvme_paths[0], files);
    for (double* rate : {&files.read, &files.write, &files.cached_read, &files.cached_write}) *rate = of_all(*rate);
    rates.files = std::move(files);
  }
  if (communicator.size() > 1) {
    rates.collectives = collectives(session, pool);
    rates.collectives->all_gather = of_all(rates.collectives->all_gather);
    rates.collectives->reduce_scatter = of_all(rates.collectives->reduce_scatter);
    rates.collectives->all_reduce_seconds = 1 / of_all(1 / rates.collectives->all_reduce_seconds);
  }
  return rates;
}

}  // namespace zeepo
