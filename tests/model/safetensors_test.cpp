#include "zeepo/model/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/errors.h"
#include "tests/support/test_data.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), std::data(values), bytes.size());
  return bytes;
}

std::string file_of(const std::string& header, const std::string& data = "") {
  return bytes_of<std::uint64_t>({header.size()}) + header + data;
}

std::string fault_of_header(const std::string& header, std::int64_t data_bytes) {
  return error_text([&] { parse_safetensors_header(header, data_bytes, "f.safetensors"); });
}

std::string fault_of_file(const std::string& bytes) {
  const TestDirectory directory;
  const auto path = directory.write("f.safetensors", bytes);
  return error_text([&] { SafetensorsFile file(path); });
}

std::vector<float> read_all(const SafetensorsFile& file, const std::string& name) {
  const auto& entry = file.at(name);
  std::vector<float> values(static_cast<std::size_t>(entry.elements));
  file.read(entry, 0, values);
  return values;
}

TEST(Safetensors, ReadsWhatTransformersWrote) {
  const SafetensorsFile file(golden("gpt2-tiny") / "model.safetensors");
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  const auto& entry = file.at("transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(entry.dtype, DType::f32);
  EXPECT_EQ(entry.shape, (std::vector<std::int64_t>{32, 96}));
  const auto whole = read_all(file, entry.name);
  std::vector<float> part(100);
  file.read(entry, 1000, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 1000));
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_TRUE(names(error_text([&] { file.at("nothing"); }), "has no tensor \"nothing\""));
}

TEST(Safetensors, ReadsIntegersOfTheGoldens) {
  const SafetensorsFile file(golden("gpt2-tiny") / "golden.safetensors");
  const auto& entry = file.at("input_ids");
  EXPECT_EQ(entry.shape, (std::vector<std::int64_t>{4, 48}));
  std::vector<std::int64_t> ids(192);
  file.read_integers(entry, 0, ids);
  for (const auto id : ids) EXPECT_TRUE(id >= 0 && id < 256) << id;
  std::vector<float> floats(192);
  EXPECT_TRUE(names(error_text([&] { file.read(entry, 0, floats); }), "\"input_ids\" has dtype \"I32\""));
}

TEST(Safetensors, ConvertsEveryFloatType) {
  const TestDirectory directory;
  const std::string data = bytes_of<double>({1.5, 1e300}) + bytes_of<float>({-2.25f, 3e-41f}) +
                           bytes_of<std::uint16_t>({0x3fc0, 0x7f80}) + bytes_of<std::uint16_t>({0x3e00, 0x0001});
  const SafetensorsFile file(directory.write("f.safetensors", file_of(R"({
      "d":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}, "f":{"dtype":"F32","shape":[2],"data_offsets":[16,24]},
      "b":{"dtype":"BF16","shape":[1,2],"data_offsets":[24,28]}, "h":{"dtype":"F16","shape":[2],"data_offsets":[28,32]}
      })",
                                                                      data)));
  EXPECT_EQ(read_all(file, "d"), (std::vector{1.5f, std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(read_all(file, "f"), (std::vector{-2.25f, 3e-41f}));
  EXPECT_EQ(read_all(file, "b"), (std::vector{1.5f, std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(read_all(file, "h"), (std::vector{1.5f, 0x1p-24f}));
}

TEST(Safetensors, ReadsATensorLargerThanAPiece) {
  const TestDirectory directory;
  const std::size_t n = 1'500'000;
  std::string data;
  for (std::size_t i = 0; i < n; ++i) data += bytes_of<std::uint16_t>({static_cast<std::uint16_t>(i % 0x7f00)});
  const SafetensorsFile file(directory.write(
      "f.safetensors", file_of(R"({"b":{"dtype":"BF16","shape":[1500000],"data_offsets":[0,3000000]}})", data)));
  std::vector<float> values(n - 1);
  file.read(file.at("b"), 1, values);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], to_float(bf16{static_cast<std::uint16_t>((i + 1) % 0x7f00)})) << i;
}

TEST(Safetensors, KeepsWhatItCannotRead) {
  const TestDirectory directory;
  const SafetensorsFile file(
      directory.write("f.safetensors", file_of(R"({
      "mask":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}, "new":{"dtype":"F3_X","shape":[9],"data_offsets":[2,4]},
      "\u00e9 \"\n":{"dtype":"I64","shape":[],"data_offsets":[4,12]},
      "none":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}
      })",
                                               std::string("\1\0xx", 4) + bytes_of<std::int64_t>({-5}))));
  EXPECT_EQ(file.entries().size(), 4u);
  std::vector<float> one(1);
  EXPECT_EQ(file.at("new").dtype, std::nullopt);
  EXPECT_TRUE(names(error_text([&] { file.read(file.at("new"), 0, one); }), "\"new\" has dtype \"F3_X\""));
  EXPECT_TRUE(names(error_text([&] { file.read(file.at("mask"), 0, one); }), "\"mask\" has dtype \"BOOL\""));
  std::vector<std::int64_t> integer(1);
  file.read_integers(file.at("\u00e9 \"\n"), 0, integer);
  EXPECT_EQ(integer[0], -5);
  EXPECT_TRUE(read_all(file, "none").empty());
}

TEST(Safetensors, RefusesReadsPastTheTensor) {
  const SafetensorsFile file(golden("gpt2-tiny") / "model.safetensors");
  const auto& entry = file.at("transformer.ln_f.bias");
  std::vector<float> out(32);
  file.read(entry, 0, out);
  for (const std::int64_t begin : {std::int64_t{-1}, std::int64_t{1}, std::int64_t{33}, INT64_MAX, INT64_MIN})
    EXPECT_TRUE(names(error_text([&] { file.read(entry, begin, out); }), "past its 32")) << begin;
}

TEST(Safetensors, RefusesFilesThatAreNot) {
  EXPECT_TRUE(names(fault_of_file(""), "0 bytes, too short"));
  EXPECT_TRUE(names(fault_of_file("1234567"), "7 bytes, too short"));
  EXPECT_TRUE(names(fault_of_file(bytes_of<std::uint64_t>({0})), "no bytes"));
  EXPECT_TRUE(names(fault_of_file(bytes_of<std::uint64_t>({3}) + "{}"), "a header of 3 bytes in a file of 10"));
  EXPECT_TRUE(names(fault_of_file(bytes_of<std::uint64_t>({100'000'001}) + "{}"), "more than the 100000000"));
  EXPECT_TRUE(names(fault_of_file(bytes_of<std::uint64_t>({~std::uint64_t{0}}) + "{}"), "18446744073709551615"));
  EXPECT_TRUE(names(fault_of_file(file_of("[]")), "must be a JSON object"));
  EXPECT_TRUE(names(fault_of_file(file_of("{")), "not JSON"));
  EXPECT_TRUE(names(fault_of_file(file_of("{}", "x")), "1 bytes after the last tensor"));
  EXPECT_TRUE(names(error_text([] { SafetensorsFile file("/nonexistent/f"); }), "/nonexistent/f"));
}

TEST(Safetensors, RefusesHeadersThatMislead) {
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_TRUE(names(fault_of_header(R"({"a":)" + entry + R"(,"a":)" + entry + "}", 4), "\"a\" is given twice"));
  EXPECT_TRUE(names(fault_of_header(std::string(1'000'000, '['), 0), "deeper than 64"));
  EXPECT_TRUE(names(fault_of_header("{\"\xff\":1}", 0), "not JSON"));
  EXPECT_TRUE(names(fault_of_header(R"({"a":1e999})", 0), "not JSON"));
  EXPECT_TRUE(names(fault_of_header(R"({"a":NaN})", 0), "not JSON"));
  EXPECT_TRUE(names(fault_of_header(R"({"a":[]})", 0), "\"a\": is described by array"));
  EXPECT_TRUE(names(fault_of_header(R"({"__metadata__":[]})", 0), "__metadata__ is array"));
  EXPECT_TRUE(names(fault_of_header(R"({"__metadata__":{"k":1}})", 0), "\"k\" is 1, must be a string"));
  EXPECT_LT(fault_of_header("{\"" + std::string(1'000'000, 'x') + "\":1}", 0).size(), 400u);
  EXPECT_LT(fault_of_header(std::string(1'000'000, 'x'), 0).size(), 400u);
}

TEST(Safetensors, RefusesEntriesThatAreWrong) {
  const auto fault = [](const std::string& entry, std::int64_t data_bytes = 4) {
    return fault_of_header(R"({"w":)" + entry + "}", data_bytes);
  };
  EXPECT_TRUE(names(fault(R"({"shape":[1],"data_offsets":[0,4]})"), "tensor \"w\": has no dtype"));
  EXPECT_TRUE(names(fault(R"({"dtype":"F32","data_offsets":[0,4]})"), "has no shape"));
  EXPECT_TRUE(names(fault(R"({"dtype":"F32","shape":[1]})"), "has no data_offsets"));
  EXPECT_TRUE(names(fault(R"({"dtype":3,"shape":[1],"data_offsets":[0,4]})"), "dtype 3 must be a string"));
  const auto with_shape = [&](const std::string& shape) {
    return fault(R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,4]})");
  };
  EXPECT_TRUE(names(with_shape("1"), "must be a list"));
  EXPECT_TRUE(names(with_shape("[-1]"), "holds -1"));
  EXPECT_TRUE(names(with_shape("[1.0]"), "holds 1.0"));
  EXPECT_TRUE(names(with_shape("[null]"), "holds null"));
  EXPECT_TRUE(names(with_shape("[18446744073709551615]"), "holds 18446744073709551615"));
  EXPECT_TRUE(names(with_shape("[4294967296,4294967296]"), "more than 2^63 - 1 elements"));
  EXPECT_TRUE(names(with_shape("[4611686018427387904]"), "do not fill the 4 bytes"));
  EXPECT_TRUE(names(with_shape("[2]"), "2 elements of F32 do not fill the 4 bytes"));
  const auto with_offsets = [&](const std::string& offsets) {
    return fault(R"({"dtype":"F32","shape":[1],"data_offsets":)" + offsets + "}");
  };
  EXPECT_TRUE(names(with_offsets("[0]"), "must be [begin, end]"));
  EXPECT_TRUE(names(with_offsets("[0,4,8]"), "must be [begin, end]"));
  EXPECT_TRUE(names(with_offsets("[-4,0]"), "holds -4"));
  EXPECT_TRUE(names(with_offsets("[4,0]"), "end before they begin"));
  EXPECT_TRUE(names(with_offsets("[4,8]"), "past the end of the data at 4"));
  EXPECT_TRUE(names(with_offsets("[9223372036854775803,9223372036854775807]"), "past the end"));
}

TEST(Safetensors, RefusesOverlapsAndHoles) {
  const auto two = [](const std::string& a, const std::string& b, std::int64_t data_bytes) {
    return fault_of_header(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
                               R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}",
                           data_bytes);
  };
  EXPECT_TRUE(names(two("[0,4]", "[2,6]", 6), "\"b\" begins at byte 2, inside the tensor before it"));
  EXPECT_TRUE(names(two("[0,4]", "[0,4]", 4), "inside the tensor before it"));
  EXPECT_TRUE(names(two("[5,9]", "[0,4]", 9), "bytes 4 to 5, before tensor \"a\", belong to no tensor"));
  EXPECT_TRUE(names(two("[1,5]", "[5,9]", 9), "bytes 0 to 1"));
  EXPECT_TRUE(names(two("[0,4]", "[4,8]", 10), "2 bytes after the last tensor"));
}

}  // namespace
}  // namespace zeepo
