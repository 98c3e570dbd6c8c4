#include "zeepo/comm/nccl/nccl_lane.h"

#include <utility>

#include "zeepo/comm/nccl/nccl_check.h"
#include "zeepo/device/cuda/point.h"

namespace zeepo {

NcclLane::NcclLane(Communicator& ranks, const char* what) {
  ThreadPool pool(1);
  CpuStream host(pool);
  ncclUniqueId id{};
  if (ranks.rank() == 0) nccl_check(ncclGetUniqueId(&id));
  static_assert(sizeof id % sizeof(std::int32_t) == 0);
  ranks.broadcast(host, {&id, DType::i32, {sizeof id / sizeof(std::int32_t)}}, 0, {fmt::format("{} id", what), 0});
  nccl_check(ncclCommInitRank(&comm_, ranks.size(), id, ranks.rank()));
  // Gathered parameters are waited for: their kernels go before others that are ready.
  int least = 0, most = 0;
  cudaStream_t stream = nullptr;
  cuda_check(cudaDeviceGetStreamPriorityRange(&least, &most));
  cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, most));
  stream_.reset(stream);
}

NcclLane::~NcclLane() { abort(); }

Point NcclLane::run(const Point& start, const Call& call, const Work& work) {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) throw Error("NCCL: the ranks have been parted");
  start_after(stream_.get(), start);
  const bool timed = patience_ > Clock::duration::zero();
  const Point begun = timed ? point_of(stream_.get()) : Point();
  work(comm_, stream_.get());
  Point done = point_of(stream_.get());
  if (timed) running_.push_back({call, begun, done});
  return done;
}

void NcclLane::set_patience(double seconds) {
  const std::lock_guard lock(mutex_);
  patience_ = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  running_.clear();
}

std::optional<Call> NcclLane::overdue() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || comm_ == nullptr) return std::nullopt;
  while (!running_.empty() && reached(running_.front().done)) running_.pop_front();
  if (running_.empty() || !reached(running_.front().begun)) return std::nullopt;
  Running& first = running_.front();
  if (!first.seen) first.seen = Clock::now();
  if (Clock::now() - *first.seen < patience_) return std::nullopt;
  return first.call;
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
