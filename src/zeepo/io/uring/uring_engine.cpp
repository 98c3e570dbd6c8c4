#include "zeepo/io/uring/uring_engine.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"
#include "zeepo/base/start_thread.h"

namespace zeepo {
namespace {

constexpr std::size_t kPartBytes = std::size_t{1} << 30;  // the kernel's limit of one registered buffer

}  // namespace

UringEngine::UringEngine(const IoOptions& options) : options_(options) {
  const auto depth = static_cast<std::size_t>(options.depth);
  slots_.resize(depth);
  for (Slot slot = depth; slot > 0; --slot) free_.push_back(slot - 1);
  event_ = ::eventfd(0, EFD_CLOEXEC);
  if (event_ < 0) throw Error("io_uring: no event to wait for: {}", std::strerror(errno));
  if (const int code = ::io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0); code < 0) {
    ::close(event_);
    throw Error("io_uring is refused: {}", std::strerror(-code));
  }
  const auto close_all = [this] {
    ::io_uring_queue_exit(&ring_);
    ::close(event_);
  };
  if (const int code = ::io_uring_register_eventfd(&ring_, event_); code < 0) {
    close_all();
    throw Error("io_uring takes no event: {}", std::strerror(-code));
  }
  try {
    thread_ = start_thread("io_uring", [this] { work(); });
  } catch (...) {
    close_all();
    throw;
  }
}

UringEngine::~UringEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
  ::io_uring_queue_exit(&ring_);
  ::close(event_);
}

std::string UringEngine::name() const {
  const std::lock_guard lock(mutex_);
  return fmt::format("io_uring, {} deep, {}", options_.depth, registration_);
}

void UringEngine::register_ranges(std::span<const std::span<std::byte>> ranges) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(register_called_, true)) throw Error("I/O engine: memory can be registered only once");
  auto parts = std::make_shared<Parts>();
  std::int64_t bytes = 0;
  for (const auto& memory : ranges) {
    bytes += static_cast<std::int64_t>(memory.size());
    for (std::size_t at = 0; at < memory.size(); at += kPartBytes)
      parts->push_back({memory.data() + at, std::min(kPartBytes, memory.size() - at)});
  }
  if (parts->empty()) return;
  std::ranges::sort(*parts, {}, &iovec::iov_base);
  const int code = ::io_uring_register_buffers(&ring_, parts->data(), static_cast<unsigned>(parts->size()));
  if (code < 0) {
    registration_ = fmt::format("{} of memory not registered: {}{}", format_size(bytes), std::strerror(-code),
                                code == -ENOMEM ? " (raise the limit of locked memory, ulimit -l)" : "");
    return;
  }
  registered_ = std::move(parts);
  registration_ = fmt::format("{} of memory registered", format_size(bytes));
}

// The part that all of the memory lies in; less than 0: none.
int UringEngine::part_of(const std::byte* data, std::size_t bytes) const {
  if (!fixed_) return -1;
  const auto after = std::ranges::upper_bound(*fixed_, static_cast<const void*>(data), std::ranges::less{},
                                              [](const iovec& part) -> const void* { return part.iov_base; });
  if (after == fixed_->begin()) return -1;
  const iovec& part = *std::prev(after);
  if (data + bytes > static_cast<const std::byte*>(part.iov_base) + part.iov_len) return -1;
  return static_cast<int>(std::prev(after) - fixed_->begin());
}

IoCompletion UringEngine::submit(IoDirection direction, std::span<const IoTransfer> transfers) {
  const auto calls = cut_into_calls(direction, transfers, options_.call_bytes);
  auto completion = completion_of(calls);
  if (calls.empty()) return completion;
  {
    const std::lock_guard lock(mutex_);
    queue(calls, new_);
  }
  wake();
  return completion;
}

void UringEngine::wake() {
  // Cannot fail: the count would have to pass 2^64 first, or the descriptor be closed.
  const std::uint64_t one = 1;
  while (::write(event_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void UringEngine::sleep() {
  std::uint64_t count = 0;
  while (::read(event_, &count, sizeof count) < 0 && errno == EINTR) {
  }
}

void UringEngine::work() {
  for (bool more = true; more || in_flight_ > 0 || !prepared_.empty() || !waiting_.empty();) {
    sleep();
    reap();
    more = take_new();
    while (!waiting_.empty() && !free_.empty() && broken_.empty()) {
      PendingCall pending = std::move(waiting_.front());
      waiting_.pop_front();
      if (pending.submission->failed()) {
        pending.submission->finish_call();
        continue;
      }
      const Slot slot = free_.back();
      free_.pop_back();
      slots_[slot] = std::move(pending);
      prepare(slot);
    }
    submit_prepared();
  }
}

bool UringEngine::take_new() {
  const std::lock_guard lock(mutex_);
  for (PendingCall& pending : new_) waiting_.push_back(std::move(pending));
  new_.clear();
  fixed_ = registered_;
  return !stopping_;
}

void UringEngine::reap() {
  io_uring_cqe* entry = nullptr;
  while (::io_uring_peek_cqe(&ring_, &entry) == 0) {
    const auto slot = static_cast<Slot>(entry->user_data);
    int result = entry->res;
    ::io_uring_cqe_seen(&ring_, entry);
    --in_flight_;
    PendingCall& pending = slots_[slot];
    if (options_.faults) result = options_.faults->answer(pending.call, result);
    const bool unfinished = advance(pending, result);
    if (unfinished && broken_.empty()) {
      prepare(slot);
    } else {
      if (unfinished) fail(pending, broken_);
      pending = {};
      free_.push_back(slot);
    }
  }
}

void UringEngine::prepare(Slot slot) {
  const IoCall& call = slots_[slot].call;
  const auto bytes = static_cast<unsigned>(options_.faults ? options_.faults->ask(call) : call.memory.size());
  const auto offset = static_cast<std::uint64_t>(call.offset);
  const int file = call.file->descriptor;
  std::byte* data = call.memory.data();
  io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);  // there is one: the ring is as deep as there are slots
  if (const int part = part_of(data, bytes); part >= 0) {
    if (call.direction == IoDirection::read)
      ::io_uring_prep_read_fixed(entry, file, data, bytes, offset, part);
    else
      ::io_uring_prep_write_fixed(entry, file, data, bytes, offset, part);
  } else {
    if (call.direction == IoDirection::read)
      ::io_uring_prep_read(entry, file, data, bytes, offset);
    else
      ::io_uring_prep_write(entry, file, data, bytes, offset);
  }
  entry->user_data = slot;
  prepared_.push_back(slot);
}

void UringEngine::submit_prepared() {
  for (int refusals = 0; !prepared_.empty() && broken_.empty();) {
    const int taken = ::io_uring_submit(&ring_);
    if (taken > 0) {
      prepared_.erase(prepared_.begin(), prepared_.begin() + taken);
      in_flight_ += static_cast<std::size_t>(taken);
      continue;
    }
    const bool again = taken == 0 || taken == -EINTR || taken == -EAGAIN || taken == -EBUSY;
    if (again && in_flight_ > 0) return;  // a completion will wake us, and free what the kernel was short of
    if (!again || ++refusals == 1000) return give_up(taken);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!broken_.empty()) give_up(0);
}

// What the kernel has taken still completes; the rest, and all that comes later, fails.
void UringEngine::give_up(int cause) {
  if (broken_.empty()) broken_ = fmt::format("io_uring takes no more requests: {}", std::strerror(-cause));
  for (const Slot slot : prepared_) {
    fail(slots_[slot], broken_);
    slots_[slot] = {};
  }
  prepared_.clear();
  for (const PendingCall& pending : waiting_) fail(pending, broken_);
  waiting_.clear();
}

}  // namespace zeepo
