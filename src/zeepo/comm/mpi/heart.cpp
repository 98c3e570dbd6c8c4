#include "zeepo/comm/mpi/heart.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/comm/mpi/abort.h"
#include "zeepo/comm/mpi/mpi_check.h"

namespace zeepo {
namespace {

constexpr auto kTick = std::chrono::milliseconds(50);
constexpr auto kTellTime = std::chrono::milliseconds(1000);   // to hand a failure to MPI
constexpr auto kSettleTime = std::chrono::milliseconds(200);  // for what MPI still holds to leave
constexpr std::size_t kMostSending = 64;                      // to ranks that do not take their messages
constexpr auto kAnswerTime = std::chrono::seconds(2);

double seconds(std::chrono::steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Heart::Heart(const MpiWorld& world, const Position& position, const Termination& termination)
    : comm_(world.heart()),
      rank_(world.rank()),
      size_(world.size()),
      position_(position),
      termination_(termination),
      thread_([this] { live(); }) {}

Heart::~Heart() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::string Heart::failure() const {
  const std::lock_guard lock(mutex_);
  const std::string here = fmt::format("while rank {} {}", rank_, position_.str());
  if (failure_.kind == Kind::silent)
    return fmt::format("rank {} has been silent for {} s {}", failure_.rank, kSilenceSeconds, here);
  return fmt::format("rank {} failed {}: {}", failure_.rank, here, failure_.text);
}

void Heart::fail(const std::string& message) {
  std::unique_lock lock(mutex_);
  if (stopped_ || failed()) return;
  request_ = Request::fail;
  request_text_ = message;
  changed_.notify_all();
  changed_.wait(lock, [&] { return stopped_ || failed(); });
}

std::string Heart::ranks_behind() {
  std::unique_lock lock(mutex_);
  answers_.assign(static_cast<std::size_t>(size_), std::nullopt);
  request_ = Request::ask;
  changed_.notify_all();
  const auto complete = [&] {
    return std::count(answers_.begin(), answers_.end(), std::nullopt) <= 1;  // it does not ask itself
  };
  changed_.wait_for(lock, kAnswerTime, [&] { return failed() || complete(); });
  const std::int64_t entered = position_.entered();
  std::string text;
  for (int rank = 0; rank < size_; ++rank) {
    const auto& answer = answers_[static_cast<std::size_t>(rank)];
    if (rank == rank_ || (answer && answer->entered >= entered)) continue;
    text += fmt::format("{}rank {} {}", text.empty() ? "" : "; ", rank, answer ? answer->text : "did not say");
  }
  return text;
}

void Heart::finish() {
  std::unique_lock lock(mutex_);
  request_ = Request::finish;
  changed_.notify_all();
  changed_.wait(lock, [&] { return stopped_ || failed(); });
}

void Heart::leave_end_to_caller() {
  const std::lock_guard lock(mutex_);
  caller_ends_ = true;
  changed_.notify_all();
}

void Heart::live() {
  try {
    mpi_check(MPI_Irecv(&incoming_, sizeof incoming_, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &receiving_));
    while (step()) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kTick, [&] { return stopping_ || request_ != Request::none; });
    }
    if (leaving_ && !failed()) {
      mpi_check(MPI_Cancel(&receiving_));
      mpi_check(MPI_Wait(&receiving_, MPI_STATUS_IGNORE));
    }
  } catch (const std::exception& error) {
    Message failure = message_of(Kind::failed, error.what());
    know(failure);
  }
  if (failed()) wait_for_end();
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

bool Heart::step() {
  const Clock::time_point now = Clock::now();
  const double pause = seconds(now - last_step_), elapsed = std::min(pause, kBeatSeconds);
  last_step_ = now;
  if (pause > kSilenceSeconds / 2) {
    stood_still_ = pause;
    resumed_at_ = now;
  }
  if (termination_.requested()) obey_termination();
  receive();
  if (failed()) return false;
  take_request();
  if (failed()) return false;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
  }
  beat(elapsed);
  if (failed()) return false;
  return !(leaving_ && predecessor_left_ && all_sent());
}

void Heart::receive() {
  while (!failed()) {
    int done = 0;
    MPI_Status status;
    mpi_check(MPI_Test(&receiving_, &done, &status));
    if (!done) return;
    const Message message = incoming_;
    mpi_check(MPI_Irecv(&incoming_, sizeof incoming_, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &receiving_));
    handle(message, status.MPI_SOURCE);
  }
}

void Heart::handle(const Message& message, int from) {
  if (from == (rank_ + size_ - 1) % size_) silent_ = 0;
  switch (message.kind) {
    case Kind::beat: break;
    case Kind::goodbye: predecessor_left_ = true; break;
    case Kind::silent:
    case Kind::failed: know(message); break;
    case Kind::question: send(from, message_of(Kind::answer, position_.str())); break;
    case Kind::answer: {
      const std::lock_guard lock(mutex_);
      if (!answers_.empty()) answers_[static_cast<std::size_t>(from)] = message;
      changed_.notify_all();
      break;
    }
  }
}

void Heart::take_request() {
  Request request;
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    request = std::exchange(request_, Request::none);
    text = request_text_;
  }
  switch (request) {
    case Request::none: break;
    case Request::fail: tell_all(message_of(Kind::failed, text)); break;
    case Request::ask: send_to_all(message_of(Kind::question)); break;
    case Request::finish:
      send((rank_ + 1) % size_, message_of(Kind::goodbye));
      leaving_ = true;
      break;
  }
}

void Heart::beat(double elapsed) {
  silent_ += elapsed;
  since_beat_ += elapsed;
  all_sent();
  if (since_beat_ >= kBeatSeconds && sending_.size() < kMostSending && !leaving_) {
    since_beat_ = 0;
    send((rank_ + 1) % size_, message_of(Kind::beat));
  }
  if (silent_ < kSilenceSeconds || predecessor_left_) return;
  if (leaving_) {  // all ranks have come to their end; there is nobody left to tell
    predecessor_left_ = true;
    return;
  }
  Message silence = message_of(Kind::silent);
  silence.rank = (rank_ + size_ - 1) % size_;
  tell_all(silence);
}

void Heart::tell_all(const Message& failure) {
  send_to_all(failure);
  const Clock::time_point start = Clock::now();
  Clock::time_point sent = Clock::time_point::max();
  while (Clock::now() < start + kTellTime) {
    if (all_sent() && sent == Clock::time_point::max()) sent = Clock::now();
    if (sent != Clock::time_point::max() && Clock::now() > sent + kSettleTime) break;
    int done = 0;  // looking for messages moves those that leave
    mpi_check(MPI_Request_get_status(receiving_, &done, MPI_STATUS_IGNORE));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  know(failure);
}

void Heart::know(const Message& failure) {
  const std::lock_guard lock(mutex_);
  failure_ = failure;
  failed_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void Heart::wait_for_end() {
  std::unique_lock lock(mutex_);
  const auto taken = [&] { return stopping_ || caller_ends_; };
  if (changed_.wait_for(lock, std::chrono::duration<double>(kAbortSeconds), taken)) return;
  lock.unlock();
  abort_mpi(rank_, failure());
}

void Heart::obey_termination() {
  // Others may have ended because this process stood still: it is no witness then.
  const bool stood_still = stood_still_ > 0 && seconds(last_step_ - resumed_at_) < kSilenceSeconds;
  const std::string died =
      stood_still ? fmt::format(", after it had stood still for {:.0f} s", stood_still_) : termination_.who_died();
  fmt::print(stderr, "zeepo: rank {}: told to end by SIGTERM while it {}{}\n", rank_, position_.str(), died);
  std::fflush(nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the other ranks must not take this one for the dead
  termination_.end_process();
}

void Heart::send(int to, const Message& message) {
  Sending& sending = sending_.emplace_back(Sending{message, MPI_REQUEST_NULL});
  mpi_check(MPI_Isend(&sending.message, sizeof(Message), MPI_BYTE, to, 0, comm_, &sending.request));
}

void Heart::send_to_all(const Message& message) {
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_ && !(message.kind == Kind::silent && message.rank == rank)) send(rank, message);
}

bool Heart::all_sent() {
  for (auto sending = sending_.begin(); sending != sending_.end();) {
    int done = 0;
    mpi_check(MPI_Test(&sending->request, &done, MPI_STATUS_IGNORE));
    sending = done ? sending_.erase(sending) : std::next(sending);
  }
  return sending_.empty();
}

Heart::Message Heart::message_of(Kind kind, const std::string& text) const {
  Message message{kind, rank_, position_.entered(), {}};
  text.copy(message.text, sizeof message.text - 1);
  return message;
}

}  // namespace zeepo
