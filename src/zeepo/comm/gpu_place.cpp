#include "zeepo/comm/gpu_place.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/device/devices.h"

namespace zeepo {
namespace {

using Words = std::array<std::int32_t, 4>;

// Every rank's words; returns when all have come.
std::vector<Words> gather(Communicator& communicator, const Words& own, const char* what) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const int ranks = communicator.size();
  const auto words = static_cast<std::int64_t>(own.size());
  std::vector<Words> all(static_cast<std::size_t>(ranks));
  communicator.all_gather(stream, ConstView{own.data(), DType::i32, {words}},
                          View{all.data(), DType::i32, {ranks * words}}, {what, 0});
  return all;
}

// Of the machine that NCCL has been told this rank is on; compared between ranks on one GPU, which run on one machine.
std::int32_t told_host() {
  const char* id = std::getenv("NCCL_HOSTID");
  return id == nullptr ? 0 : static_cast<std::int32_t>(std::hash<std::string_view>()(id) | 1);
}

}  // namespace

GpuPlace find_gpu(Communicator& communicator) {
  const int gpus = cuda_devices();
  if (gpus == 0)
    throw Error("rank {}: sees no GPU that CUDA can use; see nvidia-smi, or use --device cpu", communicator.rank());
  GpuPlace place{.gpu = communicator.local_rank() % gpus};
  const auto ids = gather(communicator, cuda_memory(place.gpu).id, "GPUs");
  // Every rank is known to the driver now, which has set aside what it wants for each.
  constexpr std::size_t kUnit = std::size_t{1} << 20;
  const auto memory = cuda_memory(place.gpu);
  const auto free_units = static_cast<std::int32_t>(memory.free_bytes / kUnit);
  const auto free = gather(communicator, {free_units, told_host()}, "free GPU memory");
  const Words& own = ids[static_cast<std::size_t>(communicator.rank())];
  std::int32_t least = free_units;
  std::vector<std::pair<Words, std::int32_t>> told_apart;  // by NCCL: GPU and host
  for (std::size_t rank = 0; rank < ids.size(); ++rank) {
    if (ids[rank] == own) least = std::min(least, free[rank][0]);
    told_apart.emplace_back(ids[rank], free[rank][1]);
  }
  const auto ranks_on = [](const auto& all, const auto& one) { return static_cast<int>(std::ranges::count(all, one)); };
  place.ranks = ranks_on(ids, own);
  for (const auto& id : ids) place.most_ranks = std::max(place.most_ranks, ranks_on(ids, id));
  for (const auto& id : told_apart) place.most_alike = std::max(place.most_alike, ranks_on(told_apart, id));
  place.all_bytes = memory.all_bytes;
  place.free_bytes = static_cast<std::size_t>(least) * kUnit / static_cast<std::size_t>(place.ranks);
  return place;
}

}  // namespace zeepo
