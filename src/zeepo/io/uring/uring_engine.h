// The engine over io_uring.
//
// One thread owns the ring: it alone submits, because the kernel cancels what a thread has in flight when that thread
// ends, and so that the compute thread does not pay for it. It sleeps on one event, which the kernel counts up at each
// completion and submit() at each new call. The destructor waits for everything in flight.
#pragma once

#include <liburing.h>

#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "zeepo/io/pending_call.h"

namespace zeepo {

class UringEngine final : public IoEngine {
 public:
  // Throws Error with the reason when the kernel refuses.
  explicit UringEngine(const IoOptions& options);
  ~UringEngine() override;
  UringEngine(const UringEngine&) = delete;
  UringEngine& operator=(const UringEngine&) = delete;

  std::string name() const override;
  void register_ranges(std::span<const std::span<std::byte>> ranges) override;
  IoCompletion submit(IoDirection direction, std::span<const IoTransfer> transfers) override;

 private:
  using Slot = std::size_t;

  void work();
  void wake();
  void sleep();
  bool take_new();  // false: nothing more will come
  void reap();
  void prepare(Slot slot);
  int part_of(const std::byte* data, std::size_t bytes) const;
  void submit_prepared();
  void give_up(int cause);

  const IoOptions options_;
  int event_ = -1;
  io_uring ring_{};

  mutable std::mutex mutex_;
  std::deque<PendingCall> new_;
  // Registered memory in parts that the kernel takes, by address; null: none.
  using Parts = std::vector<iovec>;
  std::shared_ptr<const Parts> registered_;
  std::string registration_ = "no memory registered";
  bool register_called_ = false;
  bool stopping_ = false;

  // Of the engine's thread alone.
  std::deque<PendingCall> waiting_;  // for a free slot
  std::vector<PendingCall> slots_;   // one for each call that the ring may hold
  std::vector<Slot> free_;
  std::deque<Slot> prepared_;           // in the ring, in this order, not yet taken by the kernel
  std::shared_ptr<const Parts> fixed_;  // registered_, as of the last take_new
  std::size_t in_flight_ = 0;
  std::string broken_;  // why the kernel takes nothing any more

  std::thread thread_;
};

}  // namespace zeepo
