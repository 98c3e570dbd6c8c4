// A hostile body of a request: a request within the server's limits, or an Error, never a crash.
#include <cstddef>
#include <string_view>

#include "tests/support/places.h"
#include "zeepo/base/error.h"
#include "zeepo/chat/value.h"
#include "zeepo/serve/openai_request.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace zeepo;
  static const ServedModel model = [] {
    const auto golden = std::filesystem::path(kTestData) / "golden";
    ServedModel served{"m",
                       load_config(golden / "llama-tiny"),
                       Tokenizer::load(golden / "tokenizers/llama3-bpe/tokenizer.json"),
                       ChatTemplate::parse("{% for m in messages %}{{ m.role }}{{ m.content }}{{ x }}{% endfor %}",
                                           "template", jinja::make_dict({})),
                       48,
                       4};
    served.config.vocab = served.tokenizer.vocab_size();
    return served;
  }();
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const auto parse : {parse_completion, parse_chat}) try {
      const OpenAiRequest request = parse(body, model);
      if (request.sequences() < 1 || request.sequences() > model.most_sequences) __builtin_trap();
      for (const auto& prompt : request.prompts) {
        if (prompt.empty()) __builtin_trap();
        if (static_cast<std::int64_t>(prompt.size()) + request.max_new_tokens > model.positions) __builtin_trap();
        for (const std::int32_t id : prompt)
          if (id < 0 || id >= model.config.vocab) __builtin_trap();
      }
    } catch (const Error&) {
    }
  return 0;
}
