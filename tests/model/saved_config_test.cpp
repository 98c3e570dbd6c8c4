#include "zeepo/model/saved_config.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/test_data.h"
#include "zeepo/base/file.h"

namespace zeepo {
namespace {

TEST(SavedConfig, ChangesNothingButTheDtype) {
  for (const char* name : {"gpt2-tiny", "llama-tiny", "qwen2-tiny", "qwen3-tiny", "mistral-tiny"}) {
    std::string text = read_text(golden(name) / "config.json");
    EXPECT_EQ(saved_config(text, DType::f32), text) << name;
    text.replace(text.find("float32"), 7, "bfloat16");
    EXPECT_EQ(saved_config(read_text(golden(name) / "config.json"), DType::bf16), text) << name;
  }
}

TEST(SavedConfig, KeepsTheSpelling) {
  EXPECT_EQ(saved_config(R"({"torch_dtype":"float32","architectures":["X"],"model_type":"llama"})", DType::f16),
            "{\n  \"torch_dtype\": \"float16\",\n  \"architectures\": [\n    \"X\"\n  ],\n"
            "  \"model_type\": \"llama\"\n}\n");
  const std::string both = saved_config(R"({"torch_dtype":"a","dtype":"b","model_type":"llama"})", DType::bf16);
  EXPECT_TRUE(names(both, "\"torch_dtype\": \"bfloat16\""));
  EXPECT_TRUE(names(both, "\"dtype\": \"bfloat16\""));
}

TEST(SavedConfig, FillsInWhatIsAbsent) {
  for (const char* classes : {"", R"(,"architectures":null)", R"(,"architectures":[])"}) {
    const std::string saved = saved_config(fmt::format(R"({{"model_type":"gpt2"{}}})", classes), DType::f32);
    EXPECT_TRUE(names(saved, "\"architectures\": [\n    \"GPT2LMHeadModel\"\n  ]")) << classes;
    EXPECT_TRUE(names(saved, "\"dtype\": \"float32\""));
  }
}

TEST(SavedConfig, RefusesWhatItCannotSave) {
  EXPECT_TRUE(names(error_text([] { saved_config("{}", DType::f32, "c.json"); }), "c.json: model_type: absent"));
  EXPECT_TRUE(names(error_text([] { saved_config(R"({"model_type":"gpt2"})", DType::i32); }), "saved in int32"));
}

}  // namespace
}  // namespace zeepo
