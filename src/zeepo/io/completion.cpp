#include "zeepo/io/completion.h"

#include <exception>
#include <utility>

namespace zeepo {

IoCompletion& IoCompletion::operator=(IoCompletion&& other) noexcept {
  if (this == &other) return *this;
  wait_silently();
  pending_ = std::move(other.pending_);
  return *this;
}

IoCompletion::~IoCompletion() { wait_silently(); }

void IoCompletion::wait() {
  const auto pending = std::move(pending_);
  if (pending) pending->wait();
}

void IoCompletion::wait_silently() noexcept {
  try {
    wait();
  } catch (const std::exception&) {  // documented: who wants to know has waited
  }
}

}  // namespace zeepo
