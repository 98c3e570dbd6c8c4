// A directory of CodedFiles, so that a model's weights are quantised once: keyed by what the model's files hold.
//
// A file that is damaged is made again, with a line for people. Where the directory cannot be used the weights are
// quantised at every start, with a line too.
#pragma once

#include <filesystem>
#include <string>

#include "zeepo/comm/communicator.h"
#include "zeepo/infer/coded_file.h"
#include "zeepo/model/weight_files.h"

namespace zeepo {

// $XDG_CACHE_HOME/zeepo, else ~/.cache/zeepo. Empty where there is neither.
std::filesystem::path default_cache_directory();

// A hash of all bytes of the model's weights. A file whose size, time and inode are those of an earlier call is not
// read again: its hash is kept in the directory.
std::string content_of(const WeightFiles& files, const std::filesystem::path& directory);

// The rows of the model's parameters from the directory, made there first where they are not. A collective: one rank of
// each machine makes them. `command` begins what is said.
CodedSource cached_codes(const std::string& command, const std::filesystem::path& directory, const WeightFiles& files,
                         CodedType type, const UnitPlan& units, const WeightSource& weights, CpuStream& stream,
                         Communicator& communicator);

}  // namespace zeepo
