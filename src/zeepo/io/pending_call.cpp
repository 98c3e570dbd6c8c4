#include "zeepo/io/pending_call.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

// The kernel may say "try again" under memory pressure; it does not do so forever.
constexpr int kMostRefusals = 1000;

struct SubmissionPending final : IoCompletion::Pending {
  explicit SubmissionPending(std::shared_ptr<Submission> s) : submission(std::move(s)) {}
  void wait() override { submission->wait(); }
  bool done() const override { return submission->done(); }
  std::shared_ptr<Submission> submission;
};

}  // namespace

void Submission::finish_call(const std::string& failure) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = failure;
  if (--unfinished_ == 0) changed_.notify_all();
}

bool Submission::failed() const {
  const std::lock_guard lock(mutex_);
  return !failure_.empty();
}

bool Submission::done() const {
  const std::lock_guard lock(mutex_);
  return unfinished_ == 0;
}

void Submission::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return unfinished_ == 0; });
  if (!failure_.empty()) throw Error("{}", failure_);
}

std::vector<PendingCall> cut_into_calls(IoDirection direction, std::span<const IoTransfer> transfers,
                                        std::size_t call_bytes) {
  std::vector<PendingCall> calls;
  for (const IoTransfer& transfer : transfers)
    for (std::size_t at = 0; at < transfer.memory.size(); at += call_bytes) {
      const std::size_t bytes = std::min(call_bytes, transfer.memory.size() - at);
      const auto offset = transfer.offset + static_cast<std::int64_t>(at);
      calls.push_back({{direction, transfer.file, offset, transfer.memory.subspan(at, bytes)}, nullptr});
    }
  const auto submission = std::make_shared<Submission>(calls.size());
  for (PendingCall& pending : calls) pending.submission = submission;
  return calls;
}

IoCompletion completion_of(const std::vector<PendingCall>& calls) {
  if (calls.empty()) return {};
  return IoCompletion(std::make_unique<SubmissionPending>(calls.front().submission));
}

void queue(const std::vector<PendingCall>& calls, std::deque<PendingCall>& to) {
  const auto before = static_cast<std::ptrdiff_t>(to.size());
  try {
    to.insert(to.end(), calls.begin(), calls.end());
  } catch (...) {
    to.erase(to.begin() + before, to.end());
    for (const PendingCall& pending : calls) pending.submission->finish_call("out of memory");
    throw;
  }
}

void fail(const PendingCall& pending, const std::string& cause) {
  const IoCall& call = pending.call;
  pending.submission->finish_call(fmt::format("cannot {} {}: {} bytes at offset {}: {}",
                                              call.direction == IoDirection::read ? "read" : "write", call.file->name,
                                              call.memory.size(), call.offset, cause));
}

bool advance(PendingCall& pending, int result) {
  IoCall& call = pending.call;
  if ((result == -EINTR || result == -EAGAIN) && ++pending.refusals < kMostRefusals) return true;
  if (result < 0) return fail(pending, std::strerror(-result)), false;
  auto moved = static_cast<std::size_t>(result);
  if (moved == 0)
    return fail(pending, call.direction == IoDirection::read ? "the file ends there" : "the file took no byte"), false;
  if (moved >= call.memory.size()) return pending.submission->finish_call(), false;
  // O_DIRECT goes on at a whole block only; what the kernel had begun of it is moved again.
  if (call.file->direct) moved -= moved % kDirectAlignment;
  if (moved == 0) return fail(pending, fmt::format("only {} bytes were moved", result)), false;
  call.offset += static_cast<std::int64_t>(moved);
  call.memory = call.memory.subspan(moved);
  pending.refusals = 0;
  return true;
}

}  // namespace zeepo
