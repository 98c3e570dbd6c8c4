#include "zeepo/model/saved_config.h"

#include <nlohmann/json.hpp>

#include "zeepo/base/error.h"
#include "zeepo/model/config.h"

namespace zeepo {
namespace {

const char* torch_name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    default: break;
  }
  throw Error("a model cannot be saved in {}, must be fp32, bf16 or fp16", name_of(dtype));
}

}  // namespace

std::string saved_config(std::string_view json, DType dtype, const std::string& what) {
  const ModelConfig config = parse_config(json, what);
  auto object = nlohmann::ordered_json::parse(json);
  if (object.contains("torch_dtype")) object["torch_dtype"] = torch_name_of(dtype);
  if (object.contains("dtype") || !object.contains("torch_dtype")) object["dtype"] = torch_name_of(dtype);
  if (const auto classes = object.find("architectures");
      classes == object.end() || !classes->is_array() || classes->empty())
    object["architectures"] = {class_name_of(config.architecture)};
  return object.dump(2) + "\n";
}

}  // namespace zeepo
