// One rank's states in a checkpoint: a safetensors file, and the list of its checksums beside it.
//
// Each part of a snapshot (zero/state_snapshot.h) is written where it belongs, in any order and from any thread: for
// every weight in it a tensor "NAME[begin:end]" with the exact fp32 values, and "NAME[begin:end].moment1", ".moment2"
// with the optimizer's moments, in fp32 or, of narrow moments, bf16, which holds them exactly. No rank's layout is in
// the file: another number of ranks, another stage or placement reads the ranges that it needs.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "zeepo/checkpoint/file_operations.h"
#include "zeepo/zero/state_snapshot.h"

namespace zeepo {

// How states are kept in the files.
struct StateFormat {
  std::size_t moments = 0;
  DType moment_dtype = DType::f32;
  bool finite_weights = false;  // a weight that is infinite or not a number is a failure
};
StateFormat format_of(const EngineOptions& options);

std::string tensor_name(const std::string& weight, std::int64_t begin, std::int64_t end, std::size_t kind);

class RankFile {
 public:
  // The name of a rank's file, and of the list beside it while the checkpoint is being written.
  static std::string name(int rank);
  static std::string list_name(int rank);

  // Makes the file in `directory` and takes room for all of it. Borrows operations and parts. No failure is thrown:
  // failure() tells of it, and nothing more is written.
  RankFile(FileOperations& operations, std::filesystem::path directory, int rank,
           const std::vector<SnapshotPart>& parts, const StateFormat& format);

  // The sink of a snapshot. The last part is followed by the list of checksums, and all of it brought to the disk.
  void write(std::size_t part, const StateViews& states, const View& param) noexcept;
  // Nothing more comes: all is on the disk, or failure() says why not.
  bool done() const { return done_; }
  std::string failure() const;
  std::int64_t bytes() const { return bytes_; }

 private:
  struct Tensor {
    std::string name;
    DType dtype;
    std::int64_t elements, offset;  // in the file
    std::uint64_t checksum = 0;
  };
  void lay_out();
  void make_file();
  void write_part(std::size_t part, const StateViews& states, const View& param);
  template <class Load>
  void write_tensor(Tensor& tensor, const Load& load);
  void finish();
  void fail(const std::string& cause);

  FileOperations& operations_;
  std::filesystem::path directory_;
  int rank_;
  const std::vector<SnapshotPart>& parts_;
  StateFormat format_;
  std::vector<Tensor> tensors_;
  std::vector<std::size_t> first_;  // tensor of each part
  std::string header_;
  std::int64_t bytes_ = 0;
  std::unique_ptr<SaveFile> file_;
  std::atomic<std::size_t> left_;  // parts
  std::atomic<bool> done_ = false;
  std::atomic<bool> failed_ = false;
  mutable std::mutex mutex_;
  std::string failure_;
};

}  // namespace zeepo
