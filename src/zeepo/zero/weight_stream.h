// Gathered parameters: which units are here, which are arriving, and which may go.
//
// A pass says which units each visit wants now and ahead (schedule/pass_planner.h); the engine fetches these in order,
// steps them before, and awaits what is wanted now. A fetch brings an offloaded shard up and all-gathers the ranks'
// shards; units kept whole are gathered anew only when they were stepped. Calls come from the rank's thread, the same
// on every rank.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "zeepo/schedule/pass_planner.h"
#include "zeepo/zero/collectives.h"
#include "zeepo/zero/state_store.h"

namespace zeepo {

enum class PassKind { training, inference };

class WeightStream {
 public:
  WeightStream(const UnitPlan& units, const StatePlan& plan, StateStore& store, Collectives& collectives);

  // The planner's answers: what a pass that begins, and each of its visits, wants.
  PassPlanner::Wanted begin_pass(PassKind kind);
  PassPlanner::Wanted visit(const Visit& visit) { return planner_.visit(visit); }
  void end_pass() { planner_.end(); }

  // What is not wanted goes; with a cache, as much of the offloaded units as the cache holds stays.
  void release_all_but(const PassPlanner::Wanted& wanted);
  void fetch(std::size_t unit);
  void await(std::size_t unit);
  // Units that no visit names: always here.
  void await_always_there();
  // The parameter while its unit is here; undefined else.
  Tensor parameter(const ParameterId& id) const;

  // This rank's shard of the unit has been stepped: units kept whole get what other ranks have stepped. Not here until
  // awaited.
  void publish(std::size_t unit);
  // publish(), but at the start of the next pass: for who cannot know that all ranks call it.
  void publish_later(std::size_t unit) { unpublished_.push_back(unit); }
  // All weights are new: what is cached is of the old ones.
  void drop_cache();
  // Which units the next training pass wants first; a fetch of these ahead of the pass counts with the pass.
  std::vector<bool> wanted_first();
  void fetch_early(std::size_t unit);
  std::int64_t sent_early_bytes() const { return sent_early_bytes_; }

  void set_prefetch_bytes(std::int64_t bytes) { planner_.set_prefetch_bytes(bytes); }
  // Waits for what is on its way.
  void settle();
  void outlast() noexcept;

 private:
  struct Gathered {
    Tensor flat;           // all parameters of the unit; those kept where the unit is kept whole
    Completion arriving;   // of this rank's shard of `flat`, where offloaded
    Collecting gathering;  // of `flat`
    bool here = false;
  };
  void release(std::size_t unit);
  void let_go(std::size_t unit);

  const UnitPlan& names_;
  const StatePlan& plan_;
  StateStore& store_;
  Collectives& collectives_;
  PassPlanner planner_;
  std::vector<Gathered> units_;
  std::vector<std::size_t> fetched_;  // units that are not kept whole and have memory now
  std::vector<bool> wanted_;          // scratch of release_all_but: all false between calls
  std::vector<std::size_t> unpublished_;
  // With CachePolicy::lru: gathered units that nothing wants at the moment, the one used last at the end.
  std::deque<std::size_t> cached_;
  std::int64_t cached_bytes_ = 0;
  std::int64_t sent_early_bytes_ = 0;  // for the next pass
};

}  // namespace zeepo
