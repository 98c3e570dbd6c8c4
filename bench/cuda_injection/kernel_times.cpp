// Times every kernel, copy and fill of any CUDA program, unchanged:
//
//   CUDA_INJECTION64_PATH=libkernel_times.so KERNEL_TIMES=times.tsv zeepo train --device cuda ...
//
// One line each: begin and end in nanoseconds, stream, grid, name. bench/kernel_times.py sums them up. CUDA loads the
// library when the program first calls it; the driver's records are read when a buffer is full and at exit.
#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace {

std::FILE* out = nullptr;

void check(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = "unknown";
  (void)cuptiGetResultString(result, &text);
  std::fprintf(stderr, "kernel_times: %s: %s\n", call, text);
  std::abort();
}

void write(const CUpti_Activity* activity) {
  const auto line = [](const auto& record, const char* name, int x, int y, int z) {
    std::fprintf(out, "%llu\t%llu\t%u\t%d,%d,%d\t%s\n", static_cast<unsigned long long>(record.start),
                 static_cast<unsigned long long>(record.end), record.streamId, x, y, z, name);
  };
  if (activity->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(activity);
    line(kernel, kernel.name, kernel.gridX, kernel.gridY, kernel.gridZ);
  } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    line(*reinterpret_cast<const CUpti_ActivityMemcpy6*>(activity), "[copy]", 0, 0, 0);
  } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    line(*reinterpret_cast<const CUpti_ActivityMemset4*>(activity), "[fill]", 0, 0, 0);
  }
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *bytes = std::size_t{8} << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(ACTIVITY_RECORD_ALIGNMENT, *bytes));
  if (!*buffer) std::abort();
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
  CUpti_Activity* record = nullptr;
  for (;;) {
    const CUptiResult result = cuptiActivityGetNextRecord(buffer, valid_bytes, &record);
    if (result == CUPTI_ERROR_MAX_LIMIT_REACHED) break;
    check(result, "cuptiActivityGetNextRecord");
    write(record);
  }
  std::free(buffer);
}

void finish() {
  check(cuptiActivityFlushAll(1), "cuptiActivityFlushAll");
  if (std::fclose(out) != 0) std::perror("kernel_times: KERNEL_TIMES");
}

}  // namespace

extern "C" int InitializeInjection() {
  const char* path = std::getenv("KERNEL_TIMES");
  out = path ? std::fopen(path, "w") : nullptr;
  if (!out) {
    std::fprintf(stderr, "kernel_times: KERNEL_TIMES=%s: cannot write there\n", path ? path : "");
    return 0;
  }
  check(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
  for (const auto kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET})
    check(cuptiActivityEnable(kind), "cuptiActivityEnable");
  std::atexit(finish);
  return 1;
}
