// GPT-2: learned positions, layer norms before attention and MLP, weights stored (in, out).
#pragma once

#include "zeepo/model/language_model.h"

namespace zeepo {

class Gpt2 final : public LanguageModel {
 public:
  explicit Gpt2(const ModelConfig& config);

 private:
  class Embeddings;
  class Block;
  Tensor body(const Tensor& ids, const Past& past) override;

  Embeddings* embeddings_;
  std::vector<Block*> blocks_;
};

}  // namespace zeepo
