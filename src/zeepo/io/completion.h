// The promise of reads or writes in flight. wait() returns when all bytes have been moved and throws Error naming file,
// offset, size and cause if they could not be.
//
// The memory, the file and the engine are borrowed until then: the destructor waits, so that bytes are never freed
// under a running transfer. It does not throw; a failure that nobody has waited for is lost, except where pages are
// kept account of (swap_file.h).
#pragma once

#include <memory>

namespace zeepo {

class [[nodiscard]] IoCompletion {
 public:
  // What an engine, or a layer over one, has in flight. wait() is called once, and always before destruction.
  struct Pending {
    virtual ~Pending() = default;
    virtual void wait() = 0;
    virtual bool done() const = 0;
  };

  IoCompletion() = default;  // done already
  explicit IoCompletion(std::unique_ptr<Pending> pending) : pending_(std::move(pending)) {}
  IoCompletion(IoCompletion&&) noexcept = default;
  IoCompletion& operator=(IoCompletion&& other) noexcept;  // waits for what it held
  ~IoCompletion();

  void wait();
  // Whether the bytes have been moved, or have failed to be: wait() would not wait for the disk.
  bool done() const { return !pending_ || pending_->done(); }

 private:
  void wait_silently() noexcept;

  std::unique_ptr<Pending> pending_;
};

}  // namespace zeepo
