#include "zeepo/cli/ranks.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "zeepo/base/error.h"
#include "zeepo/base/stop_request.h"
#include "zeepo/cli/usage_fault.h"
#include "zeepo/comm/throttled/throttled_communicator.h"

namespace zeepo::cli {
namespace {

// Null: not wanted, and GPU memory passes through the host's.
std::unique_ptr<Communicator> nccl_over(Communicator& ranks, const RankOptions& options) {
  if (options.backend != Backend::cuda || !may_use_nccl(ranks, options.carrier)) return nullptr;
  if (options.bytes_per_second > 0) return nullptr;  // what is slowed passes through the host's
  return make_carrier(ranks, find_gpu(ranks), options.carrier, options.timeout_seconds);
}

}  // namespace

void run_as_ranks(const Launch& launch, const RankOptions& options, const std::function<void(Communicator&)>& f) {
  const auto ranks = make_communicator(launch);
  std::unique_ptr<Communicator> nccl;  // its end may wait for the other ranks: they are told of a failure before
  const auto run = [&] {
    nccl = nccl_over(*ranks, options);
    Communicator& communicator = nccl ? *nccl : *ranks;
    std::optional<ThrottledCommunicator> slow;
    if (options.bytes_per_second > 0 && ranks->size() > 1) slow.emplace(communicator, options.bytes_per_second);
    try {
      f(slow ? static_cast<Communicator&>(*slow) : communicator);
    } catch (const Stopped&) {  // on all ranks
      communicator.finish();
      throw;
    } catch (const EndedWith&) {  // on all ranks
      communicator.finish();
      throw;
    }
    communicator.finish();
  };
  ranks->set_progress_timeout(options.timeout_seconds);  // for the first contact, too
  if (ranks->size() == 1) return run();
  std::string failure;
  try {
    share_usage_fault(*ranks, "");  // of another rank, which has not come as far as here
    run();
    return;
  } catch (const CLI::RuntimeError&) {
    throw;
  } catch (const Stopped&) {
    throw;
  } catch (const EndedWith&) {
    throw;
  } catch (const UsageError& error) {
    failure = error.what();
  } catch (const std::exception& error) {
    ranks->abort_job(error.what());
  }
  // The first look at the model has found it, as a rule on all ranks alike. If not, the others are elsewhere.
  try {
    share_usage_fault(*ranks, failure);
  } catch (const CLI::RuntimeError&) {
    throw;
  } catch (const std::exception&) {
    ranks->abort_job(failure);
  }
}

}  // namespace zeepo::cli
