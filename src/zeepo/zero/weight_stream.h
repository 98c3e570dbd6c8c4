// Gathered parameters: which units are here, which are arriving, and which may go.
//
// A pass says which units each visit wants now and ahead (schedule/pass_planner.h); the engine fetches these in order,
// steps them before, and awaits what is wanted now. A fetch brings an offloaded shard up and all-gathers the ranks'
// shards; weights that are stored as codes travel as codes, and are expanded when a visit asks for values. Units kept
// whole are gathered anew only when they were stepped. Calls come from the rank's thread, the same on every rank.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "zeepo/schedule/pass_planner.h"
#include "zeepo/zero/collectives.h"
#include "zeepo/zero/moved_bytes.h"
#include "zeepo/zero/state_store.h"

namespace zeepo {

enum class PassKind { training, inference };

// Where a front end wants the gathered parameters of units that are not kept whole: for one whose own tensors must stay
// where they are. Without it they get memory of the current device, wherever there is room.
class GatherMemory {
 public:
  virtual ~GatherMemory() = default;
  // Flat memory for the unit, the same addresses each time; the front end has it back when the last tensor is gone.
  virtual Tensor take(std::size_t unit, std::int64_t elements, DType dtype) = 0;
};

class WeightStream {
 public:
  WeightStream(const UnitPlan& units, const StatePlan& plan, StateStore& store, Collectives& collectives,
               GatherMemory* memory = nullptr);

  // The planner's answers: what a pass that begins, and each of its visits, wants now and more than before. What is not
  // wanted goes; with a cache, as much of the offloaded units as the cache holds stays.
  PassPlanner::Wanted begin_pass(PassKind kind);
  PassPlanner::Wanted visit(const Visit& visit);
  // The number of the visit that wants these units, in order; one that the plan does not have is added.
  std::size_t visit_of(const std::vector<std::size_t>& units);
  void end_pass() { planner_.end(); }
  // Between two passes of this kind: nothing of the first stays but what is cached, and what the second wants first is
  // fetched now, and counts with it.
  void run_ahead(PassKind kind);
  // Nothing is wanted any more.
  void release_all() { release_all_but({}); }
  void fetch(std::size_t unit);
  void await(std::size_t unit);
  // Units that no visit names: always here.
  void await_always_there();
  // The parameter while its unit is here; undefined else. The first one of a unit that is stored as codes expands all
  // of the unit, but for those of one dimension, which are stored exactly.
  Tensor parameter(const ParameterId& id);
  // Its rows of codes while its unit is here; undefined where it has none, or other ranks have some of them.
  struct Stored {
    Tensor rows;  // bytes
    CodedType type = CodedType::same;
  };
  Stored stored(const ParameterId& id) const;

  // This rank's shard of the unit has been stepped: units kept whole get what other ranks have stepped. Not here until
  // awaited.
  void publish(std::size_t unit);
  // publish(), but at the start of the next pass: for who cannot know that all ranks call it.
  void publish_later(std::size_t unit) { unpublished_.push_back(unit); }
  // Weights have been stepped: what is cached, and what nodes have copies of, is of the old ones. Copies of units that
  // are not trained stay.
  void drop_cache();
  // All weights are others: no copy is of them.
  void forget_copies();
  // Which units the next training pass wants first; a fetch of these ahead of the pass counts with the pass.
  std::vector<bool> wanted_first();
  void fetch_early(std::size_t unit);
  const MovedBytes& moved_early() const { return moved_early_; }

  void set_prefetch_bytes(std::int64_t bytes) { planner_.set_prefetch_bytes(bytes); }
  // Waits for what is on its way.
  void settle();
  void outlast() noexcept;

 private:
  struct Gathered {
    Tensor flat;                  // all parameters of the unit; those kept where the unit is kept whole
    Tensor coded;                 // or all ranks' shards in their stored form, until they are expanded
    Completion arriving;          // of this rank's shard of either, where offloaded
    PendingCollective gathering;  // of either
    bool here = false;
    HostRoom node_copy;                                      // this rank's part of its node's copy, as messages
    bool copy_fresh = false;                                 // of the weights as they are
    std::int64_t fetched_as = 0;                             // its key in fetched_
    std::optional<std::list<std::size_t>::iterator> cached;  // its place in cached_

    bool fetched() const { return flat.defined() || coded.defined(); }
  };
  void fetch_coded(std::size_t unit);
  void expand(std::size_t unit);
  Tensor exact_parameter(const ParameterId& id) const;
  void gather(std::size_t unit, const View& own, std::string_view what, std::vector<Completion> after);
  void release_all_but(const std::vector<std::size_t>& wanted);
  void uncache(std::size_t unit);
  void release(std::size_t unit);
  void release_or_cache(std::size_t unit);

  const UnitPlan& names_;
  const StatePlan& plan_;
  StateStore& store_;
  Collectives& collectives_;
  GatherMemory* memory_;  // null: the device's
  PassPlanner planner_;
  std::map<std::vector<std::size_t>, std::size_t> visits_;  // by units
  std::vector<Gathered> units_;
  // Units that are not kept whole and have memory now, in the order in which they were fetched.
  std::map<std::int64_t, std::size_t> fetched_;
  std::int64_t fetches_ = 0;
  std::vector<std::size_t> unpublished_;
  // With CachePolicy::lru: gathered units that nothing wants at the moment, the one used last at the end.
  std::list<std::size_t> cached_;
  std::int64_t cached_bytes_ = 0;
  MovedBytes moved_early_;  // for the next pass
};

}  // namespace zeepo
