// A safetensors file written front to back: the table first, then the values in pieces, from fp32 to each tensor's
// dtype.
//
// The bytes are those that the safetensors library writes for the same tensors: by size of dtype, then by name, the
// header padded to 8 bytes. The file appears in its place at commit(); without it nothing is left. Every fault, a full
// disk among them, is an Error naming the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/base/dtype.h"
#include "zeepo/base/file.h"

namespace zeepo {

// The elements of a shape. Throws Error naming the tensor for a negative extent or more than 2^57 elements.
std::int64_t elements_of(const std::string& name, const std::vector<std::int64_t>& shape);

class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    DType dtype = DType::f32;  // f32, bf16 or f16
    std::vector<std::int64_t> shape;
    // Or of any dtype, by the format's name ("I64"), with its values, borrowed: they are written when their turn comes.
    std::string other = {};
    std::string_view bytes = {};
  };
  using Metadata = std::map<std::string, std::string>;
  // What a file with these tensors, one after another in this order, begins with: the length, and the table padded so
  // that the values start at a multiple of `alignment`, itself one of 8. Throws Error for a DType that is not a float.
  static std::string header(const std::vector<Tensor>& tensors, const Metadata& metadata, std::size_t alignment = 8);

  // Writes the header. Throws Error for a name given twice and for a DType that is not a float.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<Tensor> tensors,
                    const Metadata& metadata = {{"format", "pt"}});

  // The bytes of the whole file.
  static std::int64_t file_bytes(const std::vector<Tensor>& tensors, const Metadata& metadata = {{"format", "pt"}});

  const std::vector<Tensor>& tensors() const { return tensors_; }  // in the order of the file
  // The next values of the file, in pieces of any length, tensor after tensor as tensors() has them, but for those that
  // came with their bytes.
  void write(std::span<const float> values);
  // Throws Error when values are missing.
  void commit();

 private:
  template <class Stored>
  void write_as(std::span<const float> values);
  // Goes on to the next tensor that wants values.
  void begin_tensor();

  OutputFile file_;
  std::vector<Tensor> tensors_;
  std::size_t current_ = 0;       // the tensor that the next value belongs to
  std::int64_t left_ = 0;         // values that it still wants
  std::vector<std::byte> piece_;  // converted values on their way to the file
};

}  // namespace zeepo
