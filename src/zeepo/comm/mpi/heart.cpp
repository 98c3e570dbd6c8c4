#include "zeepo/comm/mpi/heart.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/base/start_thread.h"
#include "zeepo/comm/mpi/abort.h"
#include "zeepo/comm/mpi/arriving_data.h"

namespace zeepo {
namespace {

constexpr auto kTick = std::chrono::milliseconds(50);
constexpr auto kTellTime = std::chrono::milliseconds(1000);   // to hand a failure to MPI
constexpr auto kSettleTime = std::chrono::milliseconds(200);  // for what MPI still holds to leave
constexpr std::size_t kMostSending = 64;                      // to ranks that do not take their messages
constexpr auto kAnswerTime = std::chrono::seconds(2);
constexpr auto kDataTime = std::chrono::seconds(5);

double seconds(std::chrono::steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Heart::Heart(const MpiWorld& world, const Position& position, const Termination& termination)
    : world_(world),
      position_(position),
      termination_(termination),
      mail_(world),
      thread_(start_thread("the heartbeat", [this] { live(); })) {}

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
  const std::string here = fmt::format("while rank {} {}", mail_.rank(), position_.str());
  if (failure_.kind == Kind::silent)
    return fmt::format("{} has been silent for {} s {}", world_.name_of(failure_.rank), kSilenceSeconds, here);
  return fmt::format("{} failed {}: {}", world_.name_of(failure_.rank), here, failure_.text);
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
  answers_.assign(static_cast<std::size_t>(mail_.size()), std::nullopt);
  request_ = Request::ask;
  changed_.notify_all();
  const auto complete = [&] {
    return std::count(answers_.begin(), answers_.end(), std::nullopt) <= 1;  // it does not ask itself
  };
  changed_.wait_for(lock, kAnswerTime, [&] { return failed() || complete(); });
  const std::int64_t entered = position_.entered();
  std::string text;
  for (int rank = 0; rank < mail_.size(); ++rank) {
    const auto& answer = answers_[static_cast<std::size_t>(rank)];
    if (rank == mail_.rank() || (answer && answer->entered >= entered)) continue;
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : "; ", world_.name_of(rank), answer ? answer->text : "did not say");
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
    mail_.open();
    while (step()) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kTick, [&] { return stopping_ || request_ != Request::none; });
    }
    if (pulse_.leaving && !failed()) mail_.close();
  } catch (const std::exception& error) {
    HeartMessage failure = message_of(Kind::failed, error.what());
    know(failure);
  }
  if (failed()) wait_for_end();
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

bool Heart::step() {
  const Clock::time_point now = Clock::now();
  const double pause = seconds(now - pulse_.last_step), elapsed = std::min(pause, kBeatSeconds);
  pulse_.last_step = now;
  if (pause > kSilenceSeconds / 2) {
    pulse_.stood_still = pause;
    pulse_.resumed_at = now;
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
  return !(pulse_.leaving && pulse_.predecessor_left && mail_.all_sent());
}

void Heart::receive() {
  while (!failed()) {
    const auto received = mail_.receive();
    if (!received) return;
    handle(received->message, received->from);
  }
}

void Heart::handle(const HeartMessage& message, int from) {
  if (from == mail_.predecessor()) pulse_.silent = 0;
  switch (message.kind) {
    case Kind::beat: break;
    case Kind::goodbye: pulse_.predecessor_left = true; break;
    case Kind::silent:
    case Kind::failed: know(message); break;
    case Kind::question: mail_.send(from, message_of(Kind::answer, position_.str())); break;
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
    case Request::ask: mail_.send_to_all(message_of(Kind::question)); break;
    case Request::finish:
      mail_.send(mail_.successor(), message_of(Kind::goodbye));
      pulse_.leaving = true;
      break;
  }
}

void Heart::beat(double elapsed) {
  pulse_.silent += elapsed;
  pulse_.since_beat += elapsed;
  const std::size_t sending = mail_.sending();
  if (pulse_.since_beat >= kBeatSeconds && sending < kMostSending && !pulse_.leaving) {
    pulse_.since_beat = 0;
    mail_.send(mail_.successor(), message_of(Kind::beat));
  }
  if (pulse_.silent < kSilenceSeconds || pulse_.predecessor_left) return;
  if (data_has_arrived_within(kDataTime)) {  // on a slow link, ahead of the beats
    pulse_.silent = kSilenceSeconds - kBeatSeconds;
    return;
  }
  if (pulse_.leaving) {  // all ranks have come to their end; there is nobody left to tell
    pulse_.predecessor_left = true;
    return;
  }
  HeartMessage silence = message_of(Kind::silent);
  silence.rank = mail_.predecessor();
  tell_all(silence);
}

void Heart::tell_all(const HeartMessage& failure) {
  mail_.send_to_all(failure);
  const Clock::time_point start = Clock::now();
  Clock::time_point sent = Clock::time_point::max();
  while (Clock::now() < start + kTellTime) {
    if (mail_.all_sent() && sent == Clock::time_point::max()) sent = Clock::now();
    if (sent != Clock::time_point::max() && Clock::now() > sent + kSettleTime) break;
    mail_.progress();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  know(failure);
}

void Heart::know(const HeartMessage& failure) {
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
  abort_mpi(mail_.rank(), failure(), world_.spread());
}

void Heart::obey_termination() {
  // Others may have ended because this process stood still: it is no witness then.
  const bool stood_still = pulse_.stood_still > 0 && seconds(pulse_.last_step - pulse_.resumed_at) < kSilenceSeconds;
  const std::string died = stood_still ? fmt::format(", after it had stood still for {:.0f} s", pulse_.stood_still)
                                       : termination_.who_died();
  const bool left_to_work = died.empty() && termination_.left_to_work();
  const bool said = std::exchange(pulse_.told_to_end, true);
  if (left_to_work && said) return;
  say("zeepo: rank {}: told to end by {} while it {}{}\n", mail_.rank(), name_of_signal(StopRequest::signal()),
      position_.str(), left_to_work ? "; it ends after this step" : died);
  std::fflush(nullptr);
  if (left_to_work) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the other ranks must not take this one for the dead
  termination_.end_process();
}

HeartMessage Heart::message_of(Kind kind, const std::string& text) const {
  HeartMessage message{kind, mail_.rank(), position_.entered(), {}};
  text.copy(message.text, sizeof message.text - 1);
  return message;
}

}  // namespace zeepo
