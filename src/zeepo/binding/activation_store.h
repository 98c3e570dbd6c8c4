// Offloads what the forward pass saves for the backward pass: written behind the one, prefetched for the other.
//
// In force as a SaveHook while a forward pass is recorded. Values come back in the reverse of the order in which they
// were saved; the next one is fetched while the last is used. The store must outlive what it has saved.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <string_view>

#include "zeepo/autograd/saved.h"
#include "zeepo/memory/lower_tiers.h"

namespace zeepo {

class ActivationStore final : public SaveHook {
 public:
  // Smaller values stay on the device: they are not worth a transfer.
  static constexpr std::size_t kLeastBytes = 4096;

  ActivationStore(LowerTiers& tiers, Place place) : tiers_(tiers), place_(place) {}

  Saved save(const Tensor& value) override;
  // Whose values are saved from now on, for the timeline; the text must outlive them.
  void set_owner(std::string_view name) { owner_ = name; }

 private:
  struct Entry;
  Tensor bring_back(const std::shared_ptr<Entry>& entry);
  void start(Entry& entry);
  void await_departure(Entry& entry);

  LowerTiers& tiers_;
  Place place_;
  std::string_view owner_;
  std::weak_ptr<Entry> last_;
  std::deque<std::weak_ptr<Entry>> leaving_;  // whose value is still on the device too
};

}  // namespace zeepo
