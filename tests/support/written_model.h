// A model directory with weights that are drawn: of any config, each tensor in the dtype that one asks for.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "zeepo/base/rng.h"
#include "zeepo/model/model_tensors.h"
#include "zeepo/model/safetensors_writer.h"

namespace zeepo {

using DTypeOfTensor = std::function<DType(const ModelTensor&)>;

// Matrices are between -0.2 and 0.2, biases 0, weights of norms 1.
inline void write_model(
    const std::filesystem::path& directory, const nlohmann::json& config,
    const DTypeOfTensor& dtype_of = [](const ModelTensor&) { return DType::f32; }) {
  std::ofstream(directory / "config.json") << config.dump();
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const ModelTensor& tensor : model_tensors(load_config(directory)))
    tensors.push_back({tensor.name, dtype_of(tensor), tensor.shape});
  SafetensorsWriter file(directory / "model.safetensors", tensors);
  std::vector<float> piece;
  std::uint64_t drawn = 0;
  for (const SafetensorsWriter::Tensor& tensor : file.tensors()) {
    const float one = tensor.name.ends_with("bias") ? 0.0f : 1.0f;
    for (std::int64_t left = elements_of(tensor.name, tensor.shape); left > 0;
         left -= static_cast<std::int64_t>(piece.size())) {
      piece.resize(static_cast<std::size_t>(std::min<std::int64_t>(left, 1 << 16)));
      if (tensor.shape.size() > 1) {
        fill_uniform(RngKey{7}, std::exchange(drawn, drawn + piece.size()), piece);
        for (float& value : piece) value = 0.4f * (value - 0.5f);
      } else {
        std::ranges::fill(piece, one);
      }
      file.write(piece);
    }
  }
  file.commit();
}

}  // namespace zeepo
