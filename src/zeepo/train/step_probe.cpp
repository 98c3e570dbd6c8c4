#include "zeepo/train/step_probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

#include "zeepo/base/start_thread.h"
#include "zeepo/device/copy_lane.h"
#include "zeepo/device/memory.h"
#include "zeepo/zero/agreement.h"
#include "zeepo/zero/host_stepper.h"
#include "zeepo/zero/state_layout.h"

namespace zeepo {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kPiece = 1 << 22;  // elements, as large as those of a run
constexpr std::int64_t kPieces = 12;      // together more than caches hold
constexpr std::size_t kCopyBytes = std::size_t{32} << 20;
constexpr std::chrono::milliseconds kWarmUp{40}, kMeasured{160};

StateLayout layout_of(const StepWork& work) {
  return {.dtype = work.dtype, .moments = state_count(work.optimizer), .moment_type = work.optimizer.moments};
}

// What is done again and again from a common start on: how much of it a second, leaving the warm-up out.
template <class F>
double rate_of(Clock::time_point start, double amount, const F& f) {
  while (Clock::now() < start + kWarmUp) f();
  const auto begin = Clock::now();
  double done = 0;
  while (Clock::now() < start + kWarmUp + kMeasured || done == 0) {
    f();
    done += amount;
  }
  return done / std::chrono::duration<double>(Clock::now() - begin).count();
}

// Bytes of a piece that the host steps.
struct Sizes {
  explicit Sizes(const StepWork& work)
      : state(layout_of(work).bytes(kPiece)),
        grads(static_cast<std::size_t>(kPiece) * size_of(work.grads)),
        piece(state + grads + static_cast<std::size_t>(kPiece) * size_of(work.dtype)) {}
  std::size_t state, grads, piece;
};

// Memory for it, all of it where the run's will be.
struct Room {
  Room(Stream& compute, const StepWork& work) : sizes(work), stepped(host_memory("host", kPieces * sizes.piece)) {
    dispatch(compute, [&](auto& s) {
      copied = transfer_memory(s, "host", 2 * kCopyBytes);
      device = device_memory(s, "device", 2 * kCopyBytes);
      up = make_copy_lane(s);
      down = make_copy_lane(s);
    });
  }
  Sizes sizes;
  MemoryRange stepped;         // not pinned, which makes no difference to who steps
  MemoryRange copied, device;  // of the host, pinned; and of the device
  std::unique_ptr<CopyLane> up, down;
};

class HostWork {
 public:
  HostWork(const Room& room, const StepWork& work, int threads)
      : room_(room), work_(work), pool_(host_step_threads(threads)), stream_(pool_) {
    pool_.run(kPieces, [&](std::int64_t i) {  // brings the pages into being
      std::memset(room.stepped.data() + static_cast<std::size_t>(i) * room.sizes.piece, 0, room.sizes.piece);
    });
  }
  void step_piece() {
    std::byte* state = room_.stepped.data() + static_cast<std::size_t>(next_++ % kPieces) * room_.sizes.piece;
    std::byte *grads = state + room_.sizes.state, *param = grads + room_.sizes.grads;
    const StateViews states = layout_of(work_).views(state, kPiece);
    step(stream_, work_.optimizer,
         {.weights = {{param, work_.dtype, {kPiece}}, states.remainder},
          .grad = {grads, work_.grads, {kPiece}},
          .states = states.moments,
          .weight_decay = work_.optimizer.weight_decay},
         {&control_, DType::f32, {sizeof(StepControl) / sizeof(float)}}, 2, 1e-3);
  }

 private:
  const Room& room_;
  const StepWork& work_;
  ThreadPool pool_;
  CpuStream stream_;
  StepControl control_{.norm = 1, .grad_factor = 1, .skip = 0};
  std::int64_t next_ = 0;
};

}  // namespace

double StepWork::through_device() const {
  const auto state = static_cast<double>(layout_of(*this).bytes(kPiece)) / static_cast<double>(kPiece);
  return state + (params_on_device ? 0.0 : static_cast<double>(size_of(dtype)));
}

double StepWork::to_host() const {
  return static_cast<double>(size_of(grads)) + (params_on_device ? static_cast<double>(size_of(dtype)) : 0.0);
}

std::int64_t probe_bytes(const StepWork& work) {
  return kPieces * static_cast<std::int64_t>(Sizes(work).piece) + static_cast<std::int64_t>(2 * kCopyBytes);
}

StepRates measure_step_rates(Communicator& communicator, Stream& compute, int threads, const StepWork& work) {
  StepRates rates;
  {
    Room room(compute, work);
    HostWork host(room, work, threads);
    (void)gather_texts(communicator, "");  // all start together
    const auto start = Clock::now();
    std::array<double, 2> links{};
    std::array<std::exception_ptr, 2> failures;
    const auto carry = [&](std::size_t way, CopyLane& lane, const std::byte* from, std::byte* to) {
      try {
        lane.start_after({});
        links[way] = rate_of(start, static_cast<double>(kCopyBytes), [&] { lane.copy(from, to, kCopyBytes); });
      } catch (...) {
        failures[way] = std::current_exception();
      }
    };
    {
      const std::string_view purpose = "measuring the link";
      const auto up =
          start_thread<std::jthread>(purpose, [&] { carry(0, *room.up, room.copied.data(), room.device.data()); });
      const auto down = start_thread<std::jthread>(
          purpose, [&] { carry(1, *room.down, room.device.data() + kCopyBytes, room.copied.data() + kCopyBytes); });
      rates.host_elements_per_second = rate_of(start, static_cast<double>(kPiece), [&] { host.step_piece(); });
    }
    for (const auto& failure : failures)
      if (failure) std::rethrow_exception(failure);
    rates.link_bytes_per_second = std::min(links[0], links[1]);
  }
  (void)gather_texts(communicator, "");  // no rank takes its memory before all have given this back
  return rates;
}

double host_share(const StepRates& rates, const StepWork& work, double waited_seconds, double elements) {
  const double saved_bytes = work.through_device() - work.to_host();
  if (saved_bytes <= 0) return 0;
  const double seconds = 1 / rates.host_elements_per_second + saved_bytes / rates.link_bytes_per_second;
  return std::min(balanced_share(rates, work), std::max(0.0, waited_seconds) / (elements * seconds));
}

double balanced_share(const StepRates& rates, const StepWork& work) {
  const double host = 1 / rates.host_elements_per_second;
  const double device = work.through_device() / rates.link_bytes_per_second;
  const double to_host = work.to_host() / rates.link_bytes_per_second;
  if (device <= to_host) return 0;
  return std::min(1.0, device / (host + device - to_host));  // 1: the link is behind with gradients and weights alone
}

}  // namespace zeepo
