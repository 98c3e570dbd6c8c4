// Checkpoints of a module of PyTorch's, in the format of `zeepo train`: `zeepo inspect` reads them, and any number of
// ranks, any stage and any placement goes on from them. Every call is a collective.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "zeepo/comm/communicator.h"
#include "zeepo/model/safetensors_writer.h"
#include "zeepo/zero/engine.h"
#include "zeepo/zero/session.h"

namespace zeepo {

// Writes directory/step-N, with rank 0's `buffers`, the bytes of a file, where there are any. Between two steps. Throws
// Error on every rank when any of them has failed; nothing is left.
std::filesystem::path save_checkpoint(Engine& engine, Communicator& ranks, const std::filesystem::path& directory,
                                      const std::string& buffers);

// This checkpoint, or the newest of a directory of them, and the buffers' file that it has.
struct FoundCheckpoint {
  std::filesystem::path path;
  std::string buffers;
};
FoundCheckpoint find_checkpoint(Communicator& ranks, const std::filesystem::path& directory);
void load_checkpoint(Engine& engine, Communicator& ranks, const std::filesystem::path& path);

// Rank 0 writes the weights as one safetensors file, in this dtype and with these shapes, and `buffers` with them.
using WeightExtents = std::map<std::string, std::vector<std::int64_t>>;
void export_weights(Engine& engine, Communicator& ranks, const std::filesystem::path& file, DType dtype,
                    const WeightExtents& extents, const std::vector<SafetensorsWriter::Tensor>& buffers);

// "params", "world_size", "weights_hash", and "ranks" as in the summary of `zeepo train`, as JSON.
std::string report_of(Engine& engine, Session& session);

}  // namespace zeepo
