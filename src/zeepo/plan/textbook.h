// The answer of the papers' formulas to one question: what `zeepo plan` prints for a number of parameters or a shape.
//
// Pure. What it leaves out (padding, buffers, gaps of the allocator) exact_plan.h has.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/plan/infinity_formulas.h"
#include "zeepo/plan/zero_formulas.h"

namespace zeepo {

struct TextbookQuestion {
  std::int64_t params = 0;
  std::optional<TransformerShape> shape;  // without it nothing is said of activations and working memory
  std::int64_t vocab = 0;                 // told beside the parameters, which leave out the embedding; 0: not known
  std::int64_t ranks = 1, gpus_per_node = 1;
  TokenBatchShape batch;  // of one GPU
  std::int64_t checkpoint_interval = 1;
  BytesPerParam bytes;
  double peak_flops = 70e12;               // of one GPU; the default is what ZeRO-Infinity's section 4 takes for a V100
  std::optional<double> bytes_per_second;  // to tell the efficiency at

  // The question of a shape: its parameters by the formula.
  static TextbookQuestion of(const TransformerShape& shape);
};

struct StageFigures {
  int stage = 0;
  StateBytes bytes;  // of a rank
  std::int64_t comm_elements = 0;
};

struct ActivationFigures {
  std::int64_t checkpoint_bytes_per_node = 0, full_bytes_per_node = 0;
  std::int64_t checkpoint_bytes_per_gpu = 0, full_bytes_per_gpu = 0;
  std::int64_t model_state_working_bytes = 0, working_bytes = 0;  // of a GPU
};

// Of what is moved, for the share of the peak that is reached without overlap.
struct BandwidthFigures {
  std::string what;
  double intensity = 0;
  double bytes_per_second_for_50 = 0, bytes_per_second_for_90 = 0;
  std::optional<double> efficiency;  // at the question's bandwidth
};

struct Textbook {
  TextbookQuestion question;
  std::int64_t embedding_params = 0;
  double flops_per_step = 0;  // of a rank
  std::array<StageFigures, kZeroStages> stages;
  std::optional<ActivationFigures> activations;
  std::vector<BandwidthFigures> bandwidth;
};

// Throws UsageError for a question without an answer, naming the option.
Textbook textbook_of(const TextbookQuestion& question);

// The fields that scripts rely on: params, stages, activations, working, bandwidth.
nlohmann::ordered_json to_json(const Textbook& textbook);

}  // namespace zeepo
