// What `zeepo plan` was asked, as texts, and how they are read.
#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/comm/launch.h"
#include "zeepo/plan/hardware.h"
#include "zeepo/plan/textbook.h"
#include "zeepo/train/option_table.h"

namespace zeepo::cli {

// Options of a run that a plan depends on, as `zeepo train` describes them; with --params or --layers those alone that
// the formulas know.
inline constexpr std::array kPlanFormulaOptions{"--seq-len", "--micro-batch", "--memory"};
inline constexpr std::array kPlanRunOptions{"--grad-accum",  "--device",       "--dtype",
                                            "--optimizer",   "--moments",      "--clip",
                                            "--tile-linear", "--nvme-path",    "--activation-checkpointing",
                                            "--prefetch",    "--matmul-dtype", "--simulate-link"};

struct PlanOptions {
  std::string model, params, layers, hidden, heads, vocab;
  std::string ranks, gpus_per_node, bytes_per_param = "16", interval = "1";
  std::string peak_tflops = fmt::format("{:g}", TextbookQuestion{}.peak_flops / 1e12), bandwidth_gbps;
  bool json = false, inference = false;
  std::string batch = "1", prompt_tokens = "512", new_tokens = "128";  // of inference, and the three below
  std::string weights, kv = "none", kv_dtype = "same";
  std::filesystem::path explain, html;
  std::optional<Hardware> hardware;
  std::vector<std::string> sweeps;
  OptionTexts run;  // kPlanFormulaOptions and kPlanRunOptions as given
};

// What the options of a run have to say, in the name of this command.
template <class F>
auto in_own_name(const F& f) {
  try {
    return f();
  } catch (const UsageError& error) {
    const std::string text = error.what();
    constexpr std::string_view kTrain = "train: ";
    throw UsageError("{}", text.starts_with(kTrain) ? "plan: " + text.substr(kTrain.size()) : text);
  }
}

// --ranks and --gpus-per-node, or what --hardware has.
struct RankCounts {
  std::int64_t all = 1, on_node = 1;
};
RankCounts rank_counts(const PlanOptions& given);

// Device and dtype as train takes them, but for a GPU that need not be there.
TrainOptions train_options(const PlanOptions& given);

enum class Source { model, params, shape };
// Throws UsageError unless there is one, and for options that do not go with it.
Source source_of(const PlanOptions& options);

TextbookQuestion question_of(const PlanOptions& options, Source source);

// Writes --html, where it is given: what `page` makes.
template <class F>
void write_page(const PlanOptions& options, const F& page) {
  if (options.html.empty() || detect_launch().rank != 0) return;
  OutputFile file(options.html);
  file.write(page());
  file.commit();
}

// The answer to --inference.
std::string plan_of_inference(const PlanOptions& options);

}  // namespace zeepo::cli
