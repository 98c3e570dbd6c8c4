#include "zeepo/comm/nccl/nccl_device.h"

#include <chrono>

#include "zeepo/base/error.h"
#include "zeepo/base/start_thread.h"
#include "zeepo/comm/call.h"
#include "zeepo/comm/cuda/rank_sum.h"
#include "zeepo/comm/nccl/nccl_check.h"
#include "zeepo/comm/rank_sum.h"
#include "zeepo/device/cuda/gpu_memory.h"

namespace zeepo {
namespace {

constexpr std::int64_t kMostReduced = 1024;  // elements of an all-reduce: it is for a loss or a norm
constexpr auto kLook = std::chrono::milliseconds(100);
// For a failure to end the job in order. Longer than `ranks` takes to end one in which a rank has failed.
constexpr auto kEndTime = std::chrono::seconds(10);

}  // namespace

NcclDevice::NcclDevice(Communicator& ranks, int gpu, double timeout_seconds)
    : ranks_(ranks),
      rank_(ranks.rank()),
      size_(ranks.size()),
      gpu_(gpu),
      current_(gpu),
      gathered_(gpu_memory(gpu, "NCCL's all-reduce", static_cast<std::size_t>(kMostReduced * size_) * sizeof(float))),
      watcher_(start_thread("watching NCCL", [this] { watch(); })) {
  try {
    set_progress_timeout(timeout_seconds);
    gather_.open(ranks, "gathers");
    reduce_.open(ranks, "reductions");
    warm_up();
  } catch (...) {
    stop_watching();
    abort_lanes();
    throw;
  }
}

NcclDevice::~NcclDevice() {
  stop_watching();
  abort_lanes();
}

// NCCL connects the ranks, and takes memory for it, when they first send: now, before anyone plans with what is free.
void NcclDevice::warm_up() {
  float* memory = reinterpret_cast<float*>(gathered_.data());
  const View full{memory, DType::f32, {size_}}, scratch{memory + size_, DType::f32, {size_}};
  cuda_check(cudaMemset(memory, 0, 2 * full.bytes()));
  cuda_check(cudaDeviceSynchronize());
  const Label label{"first contact", 0};
  for (const Point& done :
       {all_gather({}, part_of(ConstView(full), rank_, size_), full, label), broadcast({}, full, 0, label),
        reduce_scatter({}, full, scratch, part_of(full, rank_, size_), label)})
    cuda_check(cudaEventSynchronize(static_cast<cudaEvent_t>(done.event.get())));
  check();
}

void NcclDevice::close() {
  ranks_.agree({});  // none parts while another is at work, which would take it for a failure
  stop_watching();
  cuda_check(cudaSetDevice(gpu_));
  gather_.close();
  reduce_.close();
}

Call NcclDevice::entered(Call call) {
  check();
  cuda_check(cudaSetDevice(gpu_));  // of this thread
  ranks_.agree(call);
  return call;
}

// What fails because the watcher has ended it fails with the reason.
Point NcclDevice::queue(NcclLane& lane, const Point& start, const Call& call, const NcclLane::Work& work) {
  try {
    return lane.run(start, call, work);
  } catch (...) {
    check();
    throw;
  }
}

Point NcclDevice::all_gather(const Point& start, ConstView shard, View full, const Label& label) {
  const Call call = entered(all_gather_call(size_, shard, full, label));
  return queue(gather_, start, call, [&](ncclComm_t comm, cudaStream_t stream) {
    if (shard.bytes() > 0) nccl_check(ncclAllGather(shard.data, full.data, shard.bytes(), ncclUint8, comm, stream));
  });
}

Point NcclDevice::reduce_scatter(const Point& start, ConstView full, View scratch, View shard, const Label& label,
                                 const SumInto& how) {
  const Call call = entered(reduce_scatter_call(size_, full, scratch, shard, label, how));
  scratch = {scratch.data, full.dtype, full.shape};
  return queue(reduce_, start, call, [&](ncclComm_t comm, cudaStream_t stream) {
    if (shard.elements() == 0) return;
    nccl_check(ncclGroupStart());
    for (int step = 1; step < size_; ++step) {
      const int to = (rank_ + step) % size_, from = (rank_ + size_ - step) % size_;
      const ConstView out = part_of(full, to, size_);
      const View in = part_of(scratch, from, size_);
      nccl_check(ncclSend(out.data, out.bytes(), ncclUint8, to, comm, stream));
      nccl_check(ncclRecv(in.data, in.bytes(), ncclUint8, from, comm, stream));
    }
    nccl_check(ncclGroupEnd());
    sum_in_rank_order(stream, {scratch, full, rank_, size_}, shard, how);
  });
}

Point NcclDevice::all_reduce(const Point& start, View x, const Label& label) {
  if (x.elements() > kMostReduced)
    throw Error("all-reduce of {}: {} elements: must be at most {}", label.what, x.elements(), kMostReduced);
  const Call call = entered(all_reduce_call(x, label));
  const ConstView parts{gathered_.data(), DType::f32, {x.elements() * size_}};
  return queue(gather_, start, call, [&](ncclComm_t comm, cudaStream_t stream) {
    if (x.elements() == 0) return;
    nccl_check(ncclAllGather(x.data, gathered_.data(), x.bytes(), ncclUint8, comm, stream));
    sum_in_rank_order(stream, {parts, parts, rank_, size_}, x);
  });
}

Point NcclDevice::broadcast(const Point& start, View x, int root, const Label& label) {
  const Call call = entered(broadcast_call(size_, x, root, label));
  return queue(gather_, start, call, [&](ncclComm_t comm, cudaStream_t stream) {
    if (x.bytes() > 0) nccl_check(ncclBroadcast(x.data, x.data, x.bytes(), ncclUint8, root, comm, stream));
  });
}

void NcclDevice::set_progress_timeout(double seconds) {
  timeout_seconds_ = seconds;
  gather_.set_patience(seconds);
  reduce_.set_patience(seconds);
}

void NcclDevice::check() const {
  const std::lock_guard lock(mutex_);
  if (!failure_) return;
  taken_ = true;
  changed_.notify_all();
  throw Error("{}", *failure_);
}

void NcclDevice::watch() {
  std::optional<std::string> failure;
  try {
    cuda_check(cudaSetDevice(gpu_));  // of this thread
    std::unique_lock lock(mutex_);
    while (!failure && !changed_.wait_for(lock, kLook, [this] { return stopping_; })) {
      lock.unlock();
      failure = find_failure();
      lock.lock();
    }
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (failure) fail(*failure);
}

std::optional<std::string> NcclDevice::find_failure() {
  if (auto failure = ranks_.failure()) return failure;
  for (NcclLane* lane : {&gather_, &reduce_}) {
    if (auto failure = lane->async_error()) return failure;
    if (const auto call = lane->overdue())
      return fmt::format(
          "rank {} waited in NCCL for {} for more than {} s (--timeout): all ranks have entered the call, but the GPU "
          "of one has not come to it, or NCCL does not bring what it sends; NCCL_DEBUG=INFO shows what connects them",
          rank_, describe(*call), timeout_seconds_.load());
  }
  return std::nullopt;
}

// An abort may hang, and so may who is inside of NCCL on the host: the failure must be told all the same.
void NcclDevice::fail(const std::string& message) {
  std::unique_lock lock(mutex_);
  failure_ = message;
  lock.unlock();
  std::thread aborting;
  try {
    aborting = start_thread("ending NCCL", [this] {
      abort_lanes();
      const std::lock_guard done(mutex_);
      aborted_ = true;
      changed_.notify_all();
    });
  } catch (const Error&) {  // the job ends all the same, without waiting for its work
    ranks_.abort_job(message);
  }
  lock.lock();
  const auto in_order = [this] { return aborted_ && (taken_ || stopping_); };
  const bool ends = changed_.wait_for(lock, kEndTime, in_order);
  lock.unlock();
  if (!ends) ranks_.abort_job(message);
  aborting.join();
}

// At once: to abort one may wait for all that runs on the GPU, also for what only the other's abort ends.
void NcclDevice::abort_lanes() {
  const auto abort = [this](NcclLane& lane) {
    (void)cudaSetDevice(gpu_);  // of this thread; abort does without
    lane.abort();
  };
  std::thread gather;
  try {
    gather = start_thread("ending NCCL", [&] { abort(gather_); });
  } catch (const Error&) {  // one after the other, then
    abort(gather_);
  }
  abort(reduce_);
  if (gather.joinable()) gather.join();
}

void NcclDevice::stop_watching() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

}  // namespace zeepo
