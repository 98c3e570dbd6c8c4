#include "zeepo/model/safetensors_writer.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tests/support/errors.h"
#include "tests/support/test_data.h"
#include "tests/support/test_directory.h"
#include "zeepo/model/safetensors.h"

namespace zeepo {
namespace {

using Tensors = std::vector<SafetensorsWriter::Tensor>;

TEST(SafetensorsWriter, WritesTheBytesOfTheSafetensorsLibrary) {
  const TestDirectory directory;
  const auto path = directory.path() / "f.safetensors";
  SafetensorsWriter writer(path, {{"b", DType::f32, {2}},
                                  {"a.x", DType::bf16, {3}},
                                  {"a", DType::bf16, {1}},
                                  {"z", DType::f16, {1}},
                                  {"B", DType::f32, {2}},
                                  {"e\"\u00e9", DType::f32, {0}}});
  std::vector<float> values(9);
  std::iota(values.begin(), values.end(), 1.0f);
  for (const float value : values) writer.write({&value, 1});
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.commit();
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"},\"B\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
      "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},"
      "\"e\\\"\u00e9\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[16,16]},"
      "\"a\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[16,18]},"
      "\"a.x\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[18,24]},"
      "\"z\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[24,26]}}";
  const std::string bytes = read_text(path);
  EXPECT_EQ(bytes.substr(8, header.size()), header);
  EXPECT_EQ((bytes.size() - 26) % 8, 0u);
  const SafetensorsFile file(path);
  std::vector<float> found;
  for (const char* name : {"B", "b", "a", "a.x", "z"}) {
    const auto& entry = file.at(name);
    found.resize(found.size() + static_cast<std::size_t>(entry.elements));
    file.read(entry, 0, std::span(found).last(static_cast<std::size_t>(entry.elements)));
  }
  EXPECT_EQ(found, values);
}

TEST(SafetensorsWriter, PutsTensorsThatCameWithTheirBytesWhereTheyAreAligned) {
  const TestDirectory directory;
  const auto path = directory.path() / "f.safetensors";
  const std::string count(8, 'c'), mean(8, 'm'), mask(3, 'b');
  SafetensorsWriter writer(path, {{"mask", DType::f32, {3}, "BOOL", mask},
                                  {"w", DType::bf16, {1}},
                                  {"mean", DType::f32, {2}, "F32", mean},
                                  {"count", DType::f32, {}, "I64", count},
                                  {"v", DType::bf16, {2}},
                                  {"none", DType::f32, {0}, "I64", {}}});
  writer.write(std::vector<float>{1, 2, 3});
  writer.commit();
  const std::string bytes = read_text(path);
  const std::size_t values = bytes.size() - (8 + 8 + 6 + 3);
  EXPECT_EQ(values % 8, 0u);
  EXPECT_EQ(bytes.substr(values, 16), count + mean);
  EXPECT_EQ(bytes.substr(values + 16 + 6), mask);
  const SafetensorsFile file(path);
  EXPECT_EQ(file.at("mask").shape, std::vector<std::int64_t>{3});
  std::vector<float> found(2);
  file.read(file.at("v"), 0, found);
  EXPECT_EQ(found, (std::vector<float>{1, 2}));
  EXPECT_TRUE(names(error_text([&] { SafetensorsWriter(path, {{"odd", DType::f32, {2}, "I64", mask}}); }), "odd"));
}

TEST(SafetensorsWriter, CopiesAGoldenByteForByte) {
  const TestDirectory directory;
  const auto original = golden("llama-tiny") / "model.safetensors";
  const SafetensorsFile source(original);
  Tensors tensors;
  for (const auto& entry : source.entries()) tensors.insert(tensors.begin(), {entry.name, *entry.dtype, entry.shape});
  SafetensorsWriter writer(directory.path() / "copy", tensors, source.metadata());
  std::vector<float> all;
  for (const auto& tensor : writer.tensors()) {
    std::vector<float> values(static_cast<std::size_t>(source.at(tensor.name).elements));
    source.read(source.at(tensor.name), 0, values);
    all.insert(all.end(), values.begin(), values.end());
  }
  writer.write(all);
  writer.commit();
  EXPECT_EQ(read_text(directory.path() / "copy"), read_text(original));
}

TEST(SafetensorsWriter, RoundsToTheStoredType) {
  const TestDirectory directory;
  const auto path = directory.path() / "f";
  const std::size_t n = 700'000;  // more than one piece
  SafetensorsWriter writer(path, {{"b", DType::bf16, {static_cast<std::int64_t>(n)}}, {"h", DType::f16, {2}}});
  std::vector<float> values(n + 2, 1.0f + 0x1p-9f);
  values[n] = 1e9f;
  values[n + 1] = 1.0f + 0x1p-12f;
  writer.write(values);
  writer.commit();
  const SafetensorsFile file(path);
  std::vector<float> b(n), h(2);
  file.read(file.at("b"), 0, b);
  file.read(file.at("h"), 0, h);
  EXPECT_EQ(b, std::vector<float>(n, 1.0f));
  EXPECT_EQ(h, (std::vector<float>{std::numeric_limits<float>::infinity(), 1.0f}));
}

TEST(SafetensorsWriter, RefusesWhatCannotBeWritten) {
  const TestDirectory directory;
  const auto path = directory.path() / "f";
  const auto fault = [&](const Tensors& tensors) {
    return error_text([&] { SafetensorsWriter writer(path, tensors); });
  };
  EXPECT_TRUE(names(fault({{"a", DType::f32, {1}}, {"a", DType::f16, {1}}}), "\"a\" would be written twice"));
  EXPECT_TRUE(names(fault({{"__metadata__", DType::f32, {1}}}), "\"__metadata__\" would be written twice"));
  EXPECT_TRUE(names(fault({{"a", DType::i32, {1}}}), "dtype int32 cannot be written"));
  EXPECT_TRUE(names(fault({{"a", DType::f32, {-1}}}), "shape (-1)"));
  EXPECT_TRUE(names(fault({{"a", DType::f32, {INT64_MAX, 2}}}), "at most"));
  EXPECT_TRUE(names(error_text([] { SafetensorsWriter writer("/nonexistent/f", {}); }), "/nonexistent/f"));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(SafetensorsWriter, WantsEveryValueOnce) {
  const TestDirectory directory;
  const auto path = directory.path() / "f";
  {
    SafetensorsWriter writer(path, {{"a", DType::f32, {3}}});
    writer.write(std::vector<float>(2));
    EXPECT_TRUE(names(error_text([&] { writer.commit(); }), "1 values of tensor \"a\" are missing"));
    EXPECT_TRUE(names(error_text([&] { writer.write(std::vector<float>(2)); }), "1 values more than its tensors hold"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace zeepo
