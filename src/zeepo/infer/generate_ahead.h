// One text on a GPU that has all weights: tokens are chosen there, so that the pass of the next one is given to the GPU
// before the host knows this one.
#pragma once

#include "zeepo/infer/generator.h"

namespace zeepo {

// Whether generate() goes this way: on a GPU, without chance in the choice, with nothing to fetch and no drafts.
bool runs_ahead(const ModelEngine& engine, const GenerateOptions& options);

// generate(). When a token ends the text, the pass after it has begun in vain.
Generation generate_ahead(ModelEngine& engine, LanguageModel& model, DType dtype, std::span<const std::int32_t> prompt,
                          const GenerateOptions& options, const std::function<void(std::int32_t)>& on_token);

}  // namespace zeepo
