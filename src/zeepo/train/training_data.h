// --data FILE: tokens to be read at any place, and for fine-tuning data which of them count in the loss.
#pragma once

#include <filesystem>
#include <optional>

#include "zeepo/data/loss_mask.h"
#include "zeepo/data/token_file.h"
#include "zeepo/model/config.h"

namespace zeepo {

struct TrainingData {
  TokenFile tokens;
  std::optional<LossMask> mask;  // nothing: all of them count
};

// A .bin, a .txt, or a .jsonl of one kind: "text", "messages", or "prompt" and "completion". `model` is the directory
// whose tokenizer and chat template are used. Throws Error naming the file, the line and the way out.
TrainingData open_training_data(const std::filesystem::path& path, const std::filesystem::path& model,
                                const ModelConfig& config);

}  // namespace zeepo
