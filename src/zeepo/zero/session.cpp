#include "zeepo/zero/session.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/base/machine.h"
#include "zeepo/comm/self/self_communicator.h"
#include "zeepo/device/devices.h"

namespace zeepo {
namespace {

constexpr std::size_t kBoundless = std::size_t{1} << 60;

// Of the CPU.
SharedBytes shared_bytes(const Session::Options& options) {
  return share_memory(usable_memory_bytes() / options.ranks_on_node, {options.device_bytes, options.lower.host_bytes});
}

std::int64_t device_bytes(const Session::Options& options) {
  if (options.backend == Backend::cpu) return shared_bytes(options).device;
  return device_budget(options.backend, options.gpu, options.device_bytes, options.ranks_on_node);
}

std::unique_ptr<Stream> make_stream(const Session::Options& options, ThreadPool& pool) {
  if (options.backend == Backend::cuda) return make_cuda_stream(options.gpu, options.batch_invariant);
  return std::make_unique<CpuStream>(pool);
}

LowerTiers::Options lower_options(const Session::Options& options) {
  LowerTiers::Options lower = options.lower;
  // Pinned memory is taken at once: only as much as was asked for.
  if (options.backend == Backend::cpu) lower.host_bytes = shared_bytes(options).host;
  lower.timeline = options.timeline;
  return lower;
}

}  // namespace

Communicator& alone() {
  static SelfCommunicator self;  // has no state
  return self;
}

std::int64_t gpu_budget(std::size_t free_bytes) {
  // The kernels' workspace and what libraries take for themselves.
  constexpr std::size_t kAside = std::size_t{1} << 30;
  return static_cast<std::int64_t>(free_bytes > kAside ? free_bytes - kAside : 0);
}

std::int64_t device_budget(Backend backend, int gpu, std::int64_t wanted, int ranks_on_node) {
  if (wanted > 0) return wanted;
  if (backend != Backend::cuda) return usable_memory_bytes() / ranks_on_node;
  return gpu_budget(cuda_memory(gpu).free_bytes);
}

SharedBytes share_memory(std::int64_t all, const SharedBytes& given, const SharedBytes& needs) {
  if (given.device > 0 && given.host > 0) return given;
  if (given.device > 0) return {given.device, std::max<std::int64_t>(0, all - given.device)};
  if (given.host > 0) return {std::max<std::int64_t>(0, all - given.host), given.host};
  SharedBytes shared;
  shared.device = std::min(needs.device, all);
  shared.host = std::min(needs.host, all - shared.device);
  const std::int64_t left = all - shared.device - shared.host;
  shared.host += left / 8;
  shared.device += left - left / 8;
  return shared;
}

Session::Session(std::unique_ptr<ThreadPool> pool, std::unique_ptr<Stream> compute, std::unique_ptr<Stream> host,
                 std::unique_ptr<ArenaTier> memory, std::unique_ptr<LowerTiers> lower, Communicator& communicator)
    : pool_(std::move(pool)),
      compute_(std::move(compute)),
      own_host_(std::move(host)),
      host_(own_host_ ? own_host_.get() : compute_.get()),
      memory_(std::move(memory)),
      lower_(std::move(lower)),
      communicator_(&communicator),
      scope_(std::make_unique<DeviceScope>(*compute_, *memory_, lower_.get())) {}

Session::Session(const Options& options, Communicator& communicator)
    : pool_(std::make_unique<ThreadPool>(choose_threads(options.threads, options.ranks_on_node))),
      compute_(make_stream(options, *pool_)),
      own_host_(options.backend == Backend::cpu ? nullptr : std::make_unique<CpuStream>(*pool_)),
      host_(own_host_ ? own_host_.get() : compute_.get()),
      memory_(std::make_unique<ArenaTier>("device", static_cast<std::size_t>(device_bytes(options)), *compute_,
                                          options.device_taken)),
      lower_(std::make_unique<LowerTiers>(lower_options(options), *compute_, *host_)),
      communicator_(&communicator),
      scope_(std::make_unique<DeviceScope>(*compute_, *memory_, lower_.get(), options.timeline)) {}

Session Session::dry(Communicator& communicator, const LowerTiers::Options& lower, Backend plays, SimulatedTime* time) {
  auto compute = std::make_unique<DryStream>(plays, time);
  auto host = plays == Backend::cpu ? nullptr : std::make_unique<DryStream>(Backend::cpu, time);
  auto memory = std::make_unique<ArenaTier>("device", kBoundless, ArenaTier::Backing::none);
  auto below = std::make_unique<LowerTiers>(lower, *compute, host ? *host : *compute);
  return Session(nullptr, std::move(compute), std::move(host), std::move(memory), std::move(below), communicator);
}

const Usage& Session::peak(Place place) const {
  static const Usage nothing;
  if (place == Place::device) return memory_->peak();
  if (place == Place::host) return lower_->host().peak();
  return lower_->nvme() ? lower_->nvme()->peak() : nothing;
}

std::size_t Session::high_water(Place place) const {
  if (place == Place::device) return memory_->high_water();
  if (place == Place::host) return lower_->host().high_water();
  return lower_->nvme() ? lower_->nvme()->high_water() : 0;
}

std::size_t Session::budget_bytes(Place place) const {
  if (place == Place::device) return memory_->budget_bytes();
  if (place == Place::host) return lower_->host().budget_bytes();
  return lower_->nvme() ? lower_->nvme()->budget_bytes() : 0;
}

std::string Session::held() const {
  std::string leaks;
  for (const Place place : kPlaces) {
    if (place == Place::nvme && !lower_->nvme()) continue;
    Usage usage = place == Place::device ? memory_->current() : lower_->at(place).current();
    if (place == Place::host) {  // the session's own buffers
      usage.bytes[static_cast<std::size_t>(Kind::working)] -= lower_->staging_bytes();
      usage.total -= lower_->staging_bytes();
    }
    if (usage.total == 0) continue;
    leaks += fmt::format("{}{} memory: {}", leaks.empty() ? "" : "; ", name_of(place), describe(usage));
  }
  return leaks;
}

void Session::check_empty() const {
  if (const std::string leaks = held(); !leaks.empty())
    throw Error("rank {}: held at the end of the run, when nothing should be: {}. This is a fault in zeepo",
                communicator_->rank(), leaks);
}

void Session::restart_peaks() {
  memory_->restart_peak();
  lower_->host().restart_peak();
  if (lower_->nvme()) lower_->nvme()->restart_peak();
}

std::array<Usage, kPlaces.size()> Session::take_recent_peaks() {
  return {memory_->take_recent_peak(), lower_->host().take_recent_peak(),
          lower_->nvme() ? lower_->nvme()->take_recent_peak() : Usage{}};
}

}  // namespace zeepo
