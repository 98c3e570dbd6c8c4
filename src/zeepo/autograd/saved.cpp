#include "zeepo/autograd/saved.h"

namespace zeepo {
namespace {

class KeepInPlace final : public SaveHook {
 public:
  Saved save(const Tensor& value) override {
    return [kept = value.detached()] { return kept; };
  }
};

KeepInPlace keep_in_place;
thread_local SaveHook* current_hook = &keep_in_place;

}  // namespace

SaveHook& SaveHook::current() { return *current_hook; }

SaveHookScope::SaveHookScope(SaveHook& hook) : outer_(current_hook) { current_hook = &hook; }
SaveHookScope::~SaveHookScope() { current_hook = outer_; }

}  // namespace zeepo
