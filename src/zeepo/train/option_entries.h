// The entries of option_table.h, in the order of the help.
#pragma once

#include <vector>

#include "zeepo/train/option_table.h"

namespace zeepo {

inline constexpr std::int64_t kMostSamples = 1
                                             << 20;  // of a micro-batch, or micro-batches: far beyond what makes sense

// What decides the result: option_entries_training.cpp.
void add_data_options(std::vector<TrainOption>& table);
void add_optimizer_options(std::vector<TrainOption>& table);
void add_numerics_options(std::vector<TrainOption>& table);
// What of the model is trained, and how the training is watched: option_entries_tuning.cpp.
void add_tuning_options(std::vector<TrainOption>& table);
void add_evaluation_options(std::vector<TrainOption>& table);
// Where and how it is computed: option_entries_execution.cpp.
void add_rank_options(std::vector<TrainOption>& table);
void add_memory_options(std::vector<TrainOption>& table);
void add_report_options(std::vector<TrainOption>& table);
// What ranks send each other: option_entries_wire.cpp.
void add_wire_options(std::vector<TrainOption>& table);
// Events of the run for other tools: option_entries_metrics.cpp.
void add_metrics_options(std::vector<TrainOption>& table);
// What is saved of the run: option_entries_checkpoint.cpp.
void add_checkpoint_options(std::vector<TrainOption>& table);
// Who starts the ranks, and starts them again: option_entries_elastic.cpp.
void add_elastic_options(std::vector<TrainOption>& table);
// What only DeepSpeed's file can say: option_entries_file.cpp.
void add_file_options(std::vector<TrainOption>& table);

}  // namespace zeepo
