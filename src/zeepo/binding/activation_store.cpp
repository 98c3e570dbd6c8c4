#include "zeepo/binding/activation_store.h"

#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

constexpr std::size_t kLeavingAtOnce = 2;

}  // namespace

struct ActivationStore::Entry {
  Shape shape;
  DType dtype = DType::f32;
  About about;
  Block block;
  Tensor value;  // while it leaves, and when it is back
  bool left = false, back = false;
  std::weak_ptr<Entry> before;          // saved just before this one
  WaitingCompletion leaving, arriving;  // last: block and value are not given back under a running transfer
};

Saved ActivationStore::save(const Tensor& value) {
  if (value.view().bytes() < kLeastBytes) return [kept = value.detached()] { return kept; };
  auto entry = std::make_shared<Entry>();
  entry->shape = value.shape();
  entry->dtype = value.dtype();
  entry->about = {"activations", owner_};
  entry->block = tiers_.at(place_).allocate(value.view().bytes(), Kind::activations);
  entry->value = value.detached();
  entry->leaving =
      WaitingCompletion(tiers_.from_device(value.view().data, entry->block, 0, value.view().bytes(), entry->about));
  entry->before = last_;
  last_ = entry;
  leaving_.push_back(entry);
  while (leaving_.size() > kLeavingAtOnce) {
    if (const auto oldest = leaving_.front().lock()) await_departure(*oldest);
    leaving_.pop_front();
  }
  return [this, entry] { return bring_back(entry); };
}

// The value's place on the device is free for others.
void ActivationStore::await_departure(Entry& entry) {
  if (entry.left) return;
  tiers_.wait(entry.leaving.handle(), place_);
  entry.left = true;
  if (!entry.back) entry.value = {};
}

void ActivationStore::start(Entry& entry) {
  if (entry.back) return;
  entry.back = true;
  if (!entry.left) return;  // it never went
  entry.value = Tensor(entry.shape, entry.dtype);
  entry.arriving = WaitingCompletion(
      tiers_.to_device(entry.block, 0, entry.value.view().data, entry.value.view().bytes(), entry.about));
}

Tensor ActivationStore::bring_back(const std::shared_ptr<Entry>& entry) {
  start(*entry);
  if (const auto next = entry->before.lock()) start(*next);
  tiers_.wait(entry->arriving.handle(), place_);
  return entry->value;
}

}  // namespace zeepo
