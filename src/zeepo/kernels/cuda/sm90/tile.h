// Tiles of rows × columns 16-bit numbers in shared memory, as Hopper's copy engine writes and its matrix units read
// them.
//
// A tile is cut into panels of 64 columns. A panel's row is 128 bytes, in eight pieces of 16; in row r, piece p lies at
// place p ^ (r mod 8), so that neither reading along rows nor across them meets one bank twice. A panel starts at a
// multiple of 1024 bytes. Rows and columns that are not there are zero.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "zeepo/kernels/heads.h"

namespace zeepo::cuda::sm90 {

constexpr int kPanelColumns = 64;
constexpr int kRowBytes = 128;

template <int rows, int columns>
struct Tile {
  static_assert(rows % 8 == 0 && rows <= 256 && columns % kPanelColumns == 0);
  static constexpr int kPanels = columns / kPanelColumns;
  static constexpr int kPanelBytes = rows * kRowBytes;
  static constexpr int kBytes = kPanelBytes * kPanels;

  std::uint32_t address;  // in shared memory

  // The descriptor of 16 columns from `column` on of rows from `row` on (row a multiple of 8): an operand whose summed
  // index runs along rows.
  __device__ std::uint64_t along_k(int row, int column) const {
    return describe(address + (column / kPanelColumns) * kPanelBytes + row * kRowBytes + (column % kPanelColumns) * 2,
                    16);
  }
  // The descriptor of 16 rows from `row` on and all columns from `column` on (a panel's first): a right operand whose
  // summed index runs down the rows.
  __device__ std::uint64_t along_n(int row, int column) const {
    return describe(address + (column / kPanelColumns) * kPanelBytes + row * kRowBytes, kPanelBytes);
  }

 private:
  // Groups of eight rows are 1024 bytes apart, panels `panel_bytes`; 1 << 62 names the order of the pieces.
  static __device__ std::uint64_t describe(std::uint32_t start, std::uint32_t panel_bytes) {
    return (std::uint64_t{1} << 62) | (std::uint64_t{1024 >> 4} << 32) |
           (static_cast<std::uint64_t>(panel_bytes >> 4) << 16) | ((start & 0x3ffffu) >> 4);
  }
};

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Where the copy engine finds heads, for tiles of `rows` rows: made on the host, passed to a kernel by value.
CUtensorMap tensor_map(const ConstHeads& x, int rows);

// A barrier in shared memory, 8 bytes. It turns when `arrivals` have come and all bytes that were announced are there.
struct Barrier {
  std::uint32_t address;

  __device__ void init(int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
  }
  __device__ void arrive() const { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory"); }
  // Arrives, and announces bytes that copies will bring.
  __device__ void announce(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
  }
  // Returns when turn number `turn` (from 0) is complete; turn + 1 must not be.
  __device__ void wait(int turn) const {
    asm volatile(
        "{ .reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again; }\n" ::"r"(address),
        "r"(turn & 1)
        : "memory");
  }
};
// Makes barriers visible to the copy engine after init(); a __syncthreads must follow.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}

// Starts copying rows from `row` on of one head into a tile. By one thread, which has announced kBytes.
template <int rows, int columns>
__device__ __forceinline__ void load(Tile<rows, columns> tile, const CUtensorMap& map, int b, int h, int row,
                                     Barrier barrier) {
#pragma unroll
  for (int p = 0; p < Tile<rows, columns>::kPanels; ++p)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
        "%5}], "
        "[%6];" ::"r"(tile.address + p * Tile<rows, columns>::kPanelBytes),
        "l"(&map), "r"(p * kPanelColumns), "r"(h), "r"(row), "r"(b), "r"(barrier.address)
        : "memory");
}
// The same for plain bytes; all three multiples of 16.
__device__ __forceinline__ void load_bytes(std::uint32_t to, const void* from, int bytes, Barrier barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier.address)
               : "memory");
}

// Who gives a stage back: one lane for its warp, where only matrix instructions read the stage; or every thread, where
// threads read it by themselves and each must answer for its own reads.
enum class Return { by_warp, by_thread };

// Stages that thread 0 fills ahead of the warpgroups and all give back when they are done with one.
//
// Step n uses stage n mod stages. When a warp gives back step n only during step n + 1, its matrix instructions still
// running, a step is filled at most stages − 2 ahead; else stages − 1.
template <int stages, int warps, Return given = Return::by_warp>
class Stages {
 public:
  static constexpr int kBytes = 16 * stages;
  __device__ explicit Stages(std::uint32_t address) : address_(address) {}
  __device__ void init() const {
    for (int s = 0; s < stages; ++s) {
      full(s).init(1);
      empty(s).init(given == Return::by_warp ? warps : 32 * warps);
    }
  }
  // By thread 0: waits until the stage of `step` is free, announces `bytes` and returns the barrier for its copies.
  __device__ Barrier fill(int step, int bytes) const {
    if (step >= stages) empty(step % stages).wait(step / stages - 1);
    full(step % stages).announce(bytes);
    return full(step % stages);
  }
  __device__ void wait(int step) const { full(step % stages).wait(step / stages); }
  __device__ void give_back(int step) const {
    if (given == Return::by_thread || threadIdx.x % 32 == 0) empty(step % stages).arrive();
  }

 private:
  __device__ Barrier full(int s) const { return {address_ + 16 * s}; }
  __device__ Barrier empty(int s) const { return {address_ + 16 * s + 8}; }
  std::uint32_t address_;
};

}  // namespace zeepo::cuda::sm90
