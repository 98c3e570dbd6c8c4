// The options that commands share which run a model without training it: the model, the device, where weights live.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "zeepo/cli/ranks.h"
#include "zeepo/infer/inference.h"

namespace zeepo::cli {

class InferenceArguments {
 public:
  // Adds the options to the command, whose name errors begin with.
  explicit InferenceArguments(CLI::App& command);

  // As they were given. Throws UsageError.
  InferenceOptions options() const;
  RankOptions ranks() const;
  // Tokens that are drafted at a time, where any are.
  std::int64_t draft_tokens() const;

 private:
  const CLI::App& command_;
  InferenceOptions plain_;  // those that need no reading
  std::string dtype_, device_, memory_, params_, prefetch_, placement_ = "given", cache_ = "fixed", kv_ = "none",
                                                            kv_dtype_ = "same", weights_ = "same", speculate_ = "auto",
                                                            nvme_paths_, links_;
  std::filesystem::path cache_directory_;
  double timeout_seconds_ = 0;
};

// Says on rank 0 which weights that live in files are not read from the model's own, and why.
void tell_of_copies(const Inference& inference, const Communicator& communicator);

}  // namespace zeepo::cli
