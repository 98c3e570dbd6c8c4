#include "zeepo/zero/session.h"

#include "zeepo/base/machine.h"
#include "zeepo/comm/self/self_communicator.h"

namespace zeepo {
namespace {

constexpr std::size_t kBoundless = std::size_t{1} << 50;

std::size_t budget(const Session::Options& options) {
  const std::int64_t bytes =
      options.device_bytes > 0 ? options.device_bytes : usable_memory_bytes() / options.ranks_on_node;
  return static_cast<std::size_t>(bytes);
}

}  // namespace

Communicator& alone() {
  static SelfCommunicator self;  // has no state
  return self;
}

Session::Session(std::unique_ptr<ThreadPool> pool, std::unique_ptr<Stream> compute, std::unique_ptr<ArenaTier> memory,
                 Communicator& communicator)
    : pool_(std::move(pool)),
      compute_(std::move(compute)),
      memory_(std::move(memory)),
      communicator_(&communicator),
      scope_(std::make_unique<DeviceScope>(*compute_, *memory_)) {}

Session::Session(const Options& options, Communicator& communicator)
    : pool_(std::make_unique<ThreadPool>(choose_threads(options.threads, options.ranks_on_node))),
      compute_(std::make_unique<CpuStream>(*pool_)),
      memory_(std::make_unique<ArenaTier>("device", budget(options), ArenaTier::Backing::memory)),
      communicator_(&communicator),
      scope_(std::make_unique<DeviceScope>(*compute_, *memory_)) {}

Session Session::dry(Communicator& communicator) {
  return Session(nullptr, std::make_unique<DryStream>(),
                 std::make_unique<ArenaTier>("device", kBoundless, ArenaTier::Backing::none), communicator);
}

}  // namespace zeepo
