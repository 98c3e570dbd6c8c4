// Where a run's first weights come from.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "zeepo/base/thread_pool.h"
#include "zeepo/model/config.h"
#include "zeepo/model/weight_files.h"
#include "zeepo/tensor/weight_source.h"

namespace zeepo {

// Drawn from the seed: each named weight has its own stream of numbers, so that the values do not depend on how the
// model is cut. Uses the pool's threads, if one is given.
WeightSource random_weights(std::uint64_t seed, ThreadPool* pool = nullptr);

// From the name of each of the weights to that of the tensor in the files, checked against what the model needs.
std::map<std::string, std::string> stored_names(const ModelConfig& config, const std::vector<WeightSlice>& slices,
                                                const WeightFiles& files);

// Read from a model directory, checked against what the model needs. Borrows `files`.
WeightSource stored_weights(const ModelConfig& config, const std::vector<WeightSlice>& slices,
                            const WeightFiles& files);

}  // namespace zeepo
