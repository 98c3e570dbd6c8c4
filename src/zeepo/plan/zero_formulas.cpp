#include "zeepo/plan/zero_formulas.h"

#include "zeepo/base/error.h"
#include "zeepo/plan/count.h"

namespace zeepo {
namespace {

void check_stage(int stage) {
  if (stage < 0 || stage >= kZeroStages)
    throw UsageError("plan: --stage {}: must be from 0 to {}", stage, kZeroStages - 1);
}

void check_params(std::int64_t params) {
  if (params < 1) throw UsageError("plan: --params {}: must be at least 1", params);
}

void check_ranks(std::int64_t params, std::int64_t ranks) {
  check_params(params);
  if (ranks < 1) throw UsageError("plan: --ranks {}: must be at least 1", ranks);
  if (ranks > params)
    throw UsageError("plan: --ranks {}: more than the {} parameters to share; use at most {}", ranks, params, params);
}

}  // namespace

BytesPerParam BytesPerParam::of(std::int64_t total) {
  if (total == 16) return {};
  if (total == 20) return {.params = 2, .grads = 2, .optimizer = 16};
  throw UsageError("plan: --bytes-per-param {}: must be 16 (as ZeRO counts) or 20 (as ZeRO-Infinity does)", total);
}

StateBytes state_bytes(int stage, std::int64_t params, std::int64_t ranks, const BytesPerParam& bytes) {
  check_stage(stage);
  check_ranks(params, ranks);
  constexpr const char* kWhat = "bytes of the model states";
  std::int64_t whole = 0, shared = 0;  // of all parameters, kept by every rank and cut over the ranks
  const auto part = [&](int sharded_from, std::int64_t each) {
    const std::int64_t all = checked_product(kWhat, {params, each});
    std::int64_t& kind = stage >= sharded_from ? shared : whole;
    kind = checked_sum(kWhat, kind, all);
    return stage >= sharded_from ? divide_up(all, ranks) : all;
  };
  StateBytes result;
  result.params = part(3, bytes.params);
  result.grads = part(2, bytes.grads);
  result.optimizer = part(1, bytes.optimizer);
  result.total = checked_sum(kWhat, whole, divide_up(shared, ranks));
  return result;
}

std::int64_t comm_elements(int stage, std::int64_t params) {
  check_stage(stage);
  check_params(params);
  return checked_product("elements sent a step", {params, stage == 3 ? 3 : 2});
}

std::int64_t plain_share(std::int64_t params, std::int64_t ranks, std::int64_t rank) {
  check_ranks(params, ranks);
  if (rank < 0 || rank >= ranks) throw UsageError("plan: rank {}: must be from 0 to {}", rank, ranks - 1);
  return params / ranks + (rank < params % ranks ? 1 : 0);
}

}  // namespace zeepo
