#include "zeepo/comm/nccl/nccl_lane.h"

#include <utility>

#include "zeepo/comm/nccl/nccl_check.h"
#include "zeepo/device/cuda/point.h"

namespace zeepo {

NcclLane::~NcclLane() { abort(); }

void NcclLane::open(Communicator& ranks, const char* what) {
  // Gathered parameters are waited for: their kernels go before others that are ready.
  int least = 0, most = 0;
  cudaStream_t stream = nullptr;
  cuda_check(cudaDeviceGetStreamPriorityRange(&least, &most));
  cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, most));
  stream_.reset(stream);
  ThreadPool pool(1);
  CpuStream host(pool);
  ncclUniqueId id{};
  if (ranks.rank() == 0) nccl_check(ncclGetUniqueId(&id));
  static_assert(sizeof id % sizeof(std::int32_t) == 0);
  const View words{&id, DType::i32, {sizeof id / sizeof(std::int32_t)}};
  const Label label{fmt::format("NCCL's connections for {}", what), 0};
  ranks.broadcast(host, words, 0, label);
  ncclComm_t comm = nullptr;
  inside(broadcast_call(ranks.size(), words, 0, label),
         [&] { nccl_check(ncclCommInitRank(&comm, ranks.size(), id, ranks.rank())); });
  const std::lock_guard lock(mutex_);
  comm_ = comm;
}

Point NcclLane::run(const Point& start, const Call& call, const Work& work) {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) throw Error("NCCL: the ranks have been parted");
  start_after(stream_.get(), start);
  const bool timed = patient();
  const Point begun = timed ? point_of(stream_.get()) : Point();
  inside(call, [&] { work(comm_, stream_.get()); });
  Point done = point_of(stream_.get());
  const std::lock_guard running(running_mutex_);
  if (timed) running_.push_back({call, begun, done});
  return done;
}

void NcclLane::inside(const Call& call, const std::function<void()>& work) {
  const auto set = [this](std::optional<Running> now) {
    const std::lock_guard lock(running_mutex_);
    inside_ = std::move(now);
  };
  set(Running{call});
  try {
    work();
  } catch (...) {
    set(std::nullopt);
    throw;
  }
  set(std::nullopt);
}

bool NcclLane::patient() {
  const std::lock_guard lock(running_mutex_);
  return patience_.count() > 0;
}

void NcclLane::set_patience(double seconds) {
  const std::lock_guard lock(running_mutex_);
  patience_ = std::chrono::duration<double>(seconds);
  running_.clear();
  if (inside_) inside_->seen.reset();
}

std::optional<Call> NcclLane::overdue() {
  const std::lock_guard lock(running_mutex_);
  if (patience_.count() <= 0) return std::nullopt;
  while (!running_.empty() && reached(running_.front().done)) running_.pop_front();
  Running* first = nullptr;
  if (!running_.empty()) {
    if (reached(running_.front().begun)) first = &running_.front();
  } else if (inside_) {
    first = &*inside_;
  }
  if (first == nullptr) return std::nullopt;
  if (!first->seen) first->seen = Clock::now();
  if (Clock::now() - *first->seen < patience_) return std::nullopt;
  return first->call;
}

std::optional<std::string> NcclLane::async_error() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || comm_ == nullptr) return std::nullopt;  // in use, so the user finds it; or gone
  ncclResult_t state = ncclSuccess;
  nccl_check(ncclCommGetAsyncError(comm_, &state));
  if (state == ncclSuccess || state == ncclInProgress) return std::nullopt;
  return nccl_text(state, comm_);
}

void NcclLane::abort() {
  const std::unique_lock lock(mutex_, std::chrono::seconds(kAbortPatienceSeconds));
  if (ncclComm_t comm = std::exchange(comm_, nullptr)) (void)ncclCommAbort(comm);
}

void NcclLane::close() {
  const std::lock_guard lock(mutex_);
  cuda_check(cudaStreamSynchronize(stream_.get()));
  if (ncclComm_t comm = std::exchange(comm_, nullptr)) nccl_check(ncclCommDestroy(comm));
}

}  // namespace zeepo
