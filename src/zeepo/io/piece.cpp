#include "zeepo/io/piece.h"

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

void Submission::finish_piece(const std::string& failure) {
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

std::vector<Piece> cut_into_pieces(IoDirection direction, std::span<const IoTransfer> transfers,
                                   std::size_t piece_bytes) {
  std::vector<Piece> pieces;
  for (const IoTransfer& transfer : transfers)
    for (std::size_t at = 0; at < transfer.memory.size(); at += piece_bytes) {
      const std::size_t bytes = std::min(piece_bytes, transfer.memory.size() - at);
      const auto offset = transfer.offset + static_cast<std::int64_t>(at);
      pieces.push_back({{direction, transfer.file, offset, transfer.memory.subspan(at, bytes)}, nullptr});
    }
  const auto submission = std::make_shared<Submission>(pieces.size());
  for (Piece& piece : pieces) piece.submission = submission;
  return pieces;
}

IoCompletion completion_of(const std::vector<Piece>& pieces) {
  if (pieces.empty()) return {};
  return IoCompletion(std::make_unique<SubmissionPending>(pieces.front().submission));
}

void queue(const std::vector<Piece>& pieces, std::deque<Piece>& to) {
  const auto before = static_cast<std::ptrdiff_t>(to.size());
  try {
    to.insert(to.end(), pieces.begin(), pieces.end());
  } catch (...) {
    to.erase(to.begin() + before, to.end());
    for (const Piece& piece : pieces) piece.submission->finish_piece("out of memory");
    throw;
  }
}

void fail(const Piece& piece, const std::string& cause) {
  const IoCall& call = piece.call;
  piece.submission->finish_piece(fmt::format("cannot {} {}: {} bytes at offset {}: {}",
                                             call.direction == IoDirection::read ? "read" : "write", call.file->name,
                                             call.memory.size(), call.offset, cause));
}

bool advance(Piece& piece, int result) {
  IoCall& call = piece.call;
  if ((result == -EINTR || result == -EAGAIN) && ++piece.refusals < kMostRefusals) return true;
  if (result < 0) return fail(piece, std::strerror(-result)), false;
  auto moved = static_cast<std::size_t>(result);
  if (moved == 0)
    return fail(piece, call.direction == IoDirection::read ? "the file ends there" : "the file took no byte"), false;
  if (moved >= call.memory.size()) return piece.submission->finish_piece(), false;
  // O_DIRECT goes on at a whole block only; what the kernel had begun of it is moved again.
  if (call.file->direct) moved -= moved % kDirectAlignment;
  if (moved == 0) return fail(piece, fmt::format("only {} bytes were moved", result)), false;
  call.offset += static_cast<std::int64_t>(moved);
  call.memory = call.memory.subspan(moved);
  piece.refusals = 0;
  return true;
}

}  // namespace zeepo
