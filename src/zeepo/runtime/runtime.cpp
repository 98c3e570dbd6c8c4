#include "zeepo/runtime/runtime.h"

#include <algorithm>
#include <cstdio>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/comm/device_communicator.h"
#include "zeepo/device/devices.h"
#include "zeepo/zero/agreement.h"
#include "zeepo/zero/rank_report.h"

namespace zeepo {
namespace {

const char* name_of(Backend backend) { return backend == Backend::cuda ? "cuda" : "cpu"; }

using PlaceUsage = std::array<Usage, kPlaces.size()>;

// The most of any rank.
PlaceUsage largest_peaks(const nlohmann::ordered_json& ranks) {
  PlaceUsage largest;
  for (const auto& rank : ranks)
    for (const Place place : kPlaces) {
      const auto& peak = rank.at("peak_bytes").at(std::string(name_of(place)));
      Usage& most = largest[static_cast<std::size_t>(place)];
      for (const Kind kind : kKinds) {
        auto& bytes = most.bytes[static_cast<std::size_t>(kind)];
        bytes = std::max(bytes, peak.at(std::string(name_of(kind))).get<std::int64_t>());
      }
      most.total = std::max(most.total, peak.at("total").get<std::int64_t>());
    }
  return largest;
}

}  // namespace

Runtime::Runtime(const RuntimeOptions& options) : options_(options) {
  try {
    start();
  } catch (const std::exception& error) {
    if (size() > 1) ranks_.abort_job(error.what());
    throw;
  }
}

Runtime::Runtime(const RuntimeOptions& options, Communicator& ranks) : options_(options), ranks_(ranks) { start(); }

Runtime::~Runtime() { drop(); }

void Runtime::drop() noexcept {
  while (!engines_.empty()) {
    Attachment& last = *engines_.back();
    forget(last);
    last.end();
    last.runtime_ = nullptr;
  }
}

void Runtime::check_options() const {
  const auto at_least_0 = [](const char* name, auto value) {
    if (value < 0) throw UsageError("init: {} {}: must be at least 0", name, value);
  };
  at_least_0("threads", options_.threads);
  at_least_0("device_bytes", options_.device_bytes);
  at_least_0("host_bytes", options_.host_bytes);
  at_least_0("nvme_bytes", options_.nvme_bytes);
  at_least_0("timeout_seconds", options_.timeout_seconds);
  if (options_.nvme_paths.empty() != (options_.nvme_bytes == 0))
    throw UsageError("init: nvme_bytes {} with {} nvme_paths: files need both, a size and directories to be in",
                     options_.nvme_bytes, options_.nvme_paths.size());
  if (options_.backend == Backend::dry) throw UsageError("init: a runtime computes; Session::dry() runs dry");
  if (options_.backend == Backend::cuda && cuda_devices() == 0)
    throw UsageError("init: CUDA: {}; use Backend::cpu",
                     kHasCuda ? "no GPU that CUDA can use was found (see nvidia-smi)" : "this build was made without");
}

void Runtime::start() {
  check_options();
  backend_ = options_.backend.value_or(cuda_devices() > 0 ? Backend::cuda : Backend::cpu);
  if (options_.carrier == Carrier::nccl && backend_ != Backend::cuda)
    throw UsageError("init: NCCL carries GPU memory alone; use Backend::cuda");
  communicator().set_progress_timeout(options_.timeout_seconds);
  check_agreement(communicator(), {{"the device", name_of(backend_)},
                                   {"the carrier", fmt::format("{}", static_cast<int>(options_.carrier))}});
  Session::Options session{.backend = backend_,
                           .threads = options_.threads,
                           .device_bytes = options_.device_bytes,
                           .device_taken = options_.device_taken,
                           .ranks_on_node = communicator().local_size()};
  if (backend_ == Backend::cuda) {
    const GpuPlace place = ranks_.choose_gpu(options_.carrier, options_.timeout_seconds);
    session.gpu = place.gpu;
    if (session.device_bytes == 0) session.device_bytes = gpu_budget(place.free_bytes);
  }
  session.lower.host_bytes = options_.host_bytes;
  // Without NCCL, ranks on GPUs meet in host memory: an engine takes this much.
  const bool meets_in_host = backend_ == Backend::cuda && size() > 1 && communicator().on_device() == nullptr;
  if (meets_in_host && options_.host_bytes == 0) session.lower.host_bytes = kStagingBytes;
  session.lower.nvme_paths = options_.nvme_paths;
  session.lower.nvme_bytes = options_.nvme_bytes;
  session_ = std::make_unique<Session>(session, communicator());
}

Session& Runtime::session() {
  if (closed()) throw Error("runtime: closed already");
  return *session_;
}

void Runtime::forget(Attachment& attached) noexcept {
  std::erase(engines_, &attached);
  sent_ = sent_ + attached.engine().moved().all().sent;
}

// All ranks have attached their engines in the same order.
void Runtime::settle() {
  for (Attachment* attached : engines_) attached->engine().settle();
  session_->lower().drain();
  session_->compute().synchronize();
}

nlohmann::ordered_json Runtime::close() {
  if (closed()) throw Error("close: the runtime is closed already");
  const struct Closing {  // whatever happens
    ~Closing() {
      runtime.drop();
      runtime.closed_ = true;
    }
    Runtime& runtime;
  } closing{*this};
  try {
    settle();
  } catch (const std::exception& error) {
    if (ranks_.owned() && size() > 1) ranks_.abort_job(error.what());
    throw;
  }
  drop();
  nlohmann::ordered_json report{{"event", "summary"},          {"params", params_},
                                {"world_size", size()},        {"comm", communicator().name()},
                                {"device", name_of(backend_)}, {"ranks", nlohmann::ordered_json::array()}};
  auto own = rank_report(*session_, sent_, session_->lower().carried());
  own["held"] = session_->held();  // the others learn of it, so that none of them waits for this rank
  std::string leaks;
  for (const auto& text : gather_texts(communicator(), own.dump())) {
    auto rank = nlohmann::ordered_json::parse(text);
    const auto held = rank.at("held").get<std::string>();
    if (!held.empty()) leaks += fmt::format("{}rank {}: {}", leaks.empty() ? "" : "; ", rank.at("rank").dump(), held);
    rank.erase("held");
    report["ranks"].push_back(std::move(rank));
  }
  if (ranks_.owned()) communicator().finish();
  if (!leaks.empty()) throw Error("close: tensors are still held, and must go before: {}", leaks);
  print(report);
  session_.reset();
  return report;
}

void Runtime::print(const nlohmann::ordered_json& report) {
  if (rank() != 0 || options_.report == ReportAs::nothing) return;
  if (options_.report == ReportAs::json) {
    fmt::print("{}\n", report.dump());
    std::fflush(stdout);
    return;
  }
  std::array<std::int64_t, kPlaces.size()> budgets{};
  for (const Place place : kPlaces)
    budgets[static_cast<std::size_t>(place)] = static_cast<std::int64_t>(session_->budget_bytes(place));
  say("{} parameters, {} rank{} on {}; the most that any held:\n{}", params_, size(), size() == 1 ? "" : "s",
      name_of(backend_), table_of(largest_peaks(report.at("ranks")), budgets));
}

void Attachment::join() {
  runtime_->engines_.push_back(this);
  runtime_->params_ += parameter_count(engine().units());
}

void Attachment::leave() noexcept {
  if (runtime_ != nullptr) runtime_->forget(*this);
}

AttachedEngine::AttachedEngine(Runtime& runtime, Module& model, const EngineOptions& options)
    : Attachment(runtime), engine_(std::make_unique<ModelEngine>(model, runtime.session().communicator(), options)) {
  join();
}

ModelEngine& AttachedEngine::get() {
  if (!engine_) throw Error("engine: it ended when the runtime was closed");
  return *engine_;
}

}  // namespace zeepo
