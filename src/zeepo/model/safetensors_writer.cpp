#include "zeepo/model/safetensors_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "zeepo/base/error.h"
#include "zeepo/model/strict_json.h"

namespace zeepo {
namespace {

using OrderedJson = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors are little endian, and so is the writer here");

constexpr std::size_t kWrittenAtOnce = std::size_t{1} << 20;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 57;

std::int64_t bytes_of(const SafetensorsWriter::Tensor& tensor) {
  const std::int64_t elements = elements_of(tensor.name, tensor.shape);
  if (tensor.other.empty()) return elements * static_cast<std::int64_t>(size_of(tensor.dtype));
  const std::int64_t bytes = std::ssize(tensor.bytes);
  if (elements == 0 ? bytes != 0 : bytes % elements != 0)
    throw Error("tensor {}: {} bytes are not {} elements", shown(tensor.name), bytes, elements);
  return bytes;
}

// The format's order, largest alignment first.
std::pair<std::int64_t, int> rank_of(const SafetensorsWriter::Tensor& tensor) {
  const std::int64_t width = bytes_of(tensor) / std::max<std::int64_t>(elements_of(tensor.name, tensor.shape), 1);
  if (!tensor.other.empty()) return {-width, 3};
  const auto own = static_cast<std::int64_t>(size_of(tensor.dtype));
  return {-own, tensor.dtype == DType::f32 ? 0 : tensor.dtype == DType::bf16 ? 1 : 2};
}

std::string_view stored_name_of(const SafetensorsWriter::Tensor& tensor) {
  if (!tensor.other.empty()) return tensor.other;
  switch (tensor.dtype) {
    case DType::f32: return "F32";
    case DType::bf16: return "BF16";
    case DType::f16: return "F16";
    default: break;
  }
  throw Error("tensor {}: dtype {} cannot be written, must be fp32, bf16 or fp16", shown(tensor.name),
              name_of(tensor.dtype));
}

std::vector<SafetensorsWriter::Tensor> in_file_order(std::vector<SafetensorsWriter::Tensor> tensors) {
  std::ranges::sort(tensors, {}, [](const auto& t) { return std::tuple(rank_of(t), t.name); });
  std::vector<std::string> names{"__metadata__"};
  for (const auto& tensor : tensors) names.push_back(tensor.name);
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end())
    throw Error("tensor {} would be written twice", shown(*twice));
  return tensors;
}

}  // namespace

std::string SafetensorsWriter::header(const std::vector<Tensor>& tensors, const Metadata& metadata,
                                      std::size_t alignment) {
  std::uint64_t length = 0;
  std::string header(sizeof length, '\0');
  // Put together by hand: a JSON object would look for every name among all before it.
  header += metadata.empty() ? "{" : "{\"__metadata__\":" + OrderedJson(metadata).dump();
  std::int64_t begin = 0;
  for (const auto& tensor : tensors) {
    const std::string_view dtype = stored_name_of(tensor);
    const std::int64_t bytes = bytes_of(tensor);
    const OrderedJson entry{{"dtype", dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, begin + bytes}}};
    header += fmt::format("{}{}:{}", header.back() == '{' ? "" : ",", OrderedJson(tensor.name).dump(), entry.dump());
    begin += bytes;
  }
  header += "}";
  header.resize((header.size() + alignment - 1) / alignment * alignment, ' ');
  length = header.size() - sizeof length;
  std::memcpy(header.data(), &length, sizeof length);
  return header;
}

std::int64_t elements_of(const std::string& name, const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements) || elements > kMaxElements)
      throw Error("tensor {}: shape ({}) must have no negative extent and at most {} elements", shown(name),
                  fmt::join(shape, ", "), kMaxElements);
  return elements;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<Tensor> tensors,
                                     const Metadata& metadata)
    : file_(path), tensors_(in_file_order(std::move(tensors))) {
  file_.write(header(tensors_, metadata));
  begin_tensor();
}

std::int64_t SafetensorsWriter::file_bytes(const std::vector<Tensor>& tensors, const Metadata& metadata) {
  auto bytes = static_cast<std::int64_t>(header(in_file_order(tensors), metadata).size());
  for (const Tensor& tensor : tensors) bytes += bytes_of(tensor);
  return bytes;
}

void SafetensorsWriter::begin_tensor() {
  for (; current_ < tensors_.size(); ++current_) {
    const Tensor& tensor = tensors_[current_];
    left_ = tensor.other.empty() ? elements_of(tensor.name, tensor.shape) : 0;
    if (left_ > 0) return;
    file_.write(std::as_bytes(std::span(tensor.bytes)));
  }
}

template <class Stored>
void SafetensorsWriter::write_as(std::span<const float> values) {
  while (!values.empty()) {
    const auto some = values.first(std::min(values.size(), kWrittenAtOnce / sizeof(Stored)));
    piece_.resize(some.size() * sizeof(Stored));
    for (std::size_t i = 0; i < some.size(); ++i) {
      const Stored stored = from_float<Stored>(some[i]);
      std::memcpy(piece_.data() + i * sizeof(Stored), &stored, sizeof stored);
    }
    file_.write(piece_);
    values = values.subspan(some.size());
  }
}

void SafetensorsWriter::write(std::span<const float> values) {
  while (!values.empty()) {
    if (current_ == tensors_.size())
      throw Error("{}: {} values more than its tensors hold", file_.path().string(), values.size());
    const auto some = values.first(
        static_cast<std::size_t>(std::min<std::uint64_t>(values.size(), static_cast<std::uint64_t>(left_))));
    switch (tensors_[current_].dtype) {
      case DType::bf16: write_as<bf16>(some); break;
      case DType::f16: write_as<f16>(some); break;
      default: file_.write(std::as_bytes(some)); break;
    }
    left_ -= static_cast<std::int64_t>(some.size());
    values = values.subspan(some.size());
    if (left_ > 0) continue;
    ++current_;
    begin_tensor();
  }
}

void SafetensorsWriter::commit() {
  if (current_ < tensors_.size())
    throw Error("{}: {} values of tensor {} are missing", file_.path().string(), left_, shown(tensors_[current_].name));
  file_.commit();
}

}  // namespace zeepo
