#include "zeepo/cli/batch_file.h"

#include <set>
#include <string>
#include <string_view>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/base/say.h"
#include "zeepo/data/json_value.h"
#include "zeepo/infer/generator.h"
#include "zeepo/model/strict_json.h"

namespace zeepo::cli {
namespace {

constexpr std::int64_t kLargestFile = std::int64_t{1} << 30;

BatchPrompt prompt_of(const JsonValue& line, const Tokenizer* tokenizer, std::int64_t max_new_tokens) {
  const auto text = line.find("prompt"), ids = line.find("ids");
  if (text.has_value() == ids.has_value()) throw Error("{}: must have \"prompt\" or \"ids\"", line.where());
  BatchPrompt prompt;
  if (ids) {
    for (const JsonValue& id : ids->items())
      prompt.ids.push_back(static_cast<std::int32_t>(id.integer(0, std::numeric_limits<std::int32_t>::max())));
  } else {
    if (tokenizer == nullptr)
      throw Error("{}: the model has no tokenizer.json; give \"ids\", or add the tokenizer", text->where());
    prompt.ids = tokenizer->encode(text->string(), AddSpecial::yes);
  }
  const auto most = line.find("max_new_tokens");
  prompt.max_new_tokens = most ? most->integer(0, std::numeric_limits<std::int32_t>::max()) : max_new_tokens;
  return prompt;
}

}  // namespace

std::vector<BatchPrompt> read_batch_file(const std::filesystem::path& path, const Tokenizer* tokenizer,
                                         const ModelConfig& config, std::int64_t max_new_tokens, bool speaks) {
  const std::string text = read_text(path, kLargestFile);
  std::vector<BatchPrompt> prompts;
  std::set<std::string> unused;
  std::size_t number = 0;
  for (std::string_view left = text; !left.empty();) {
    const std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    const std::string where = fmt::format("{}:{}", path.string(), ++number);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const nlohmann::json object = parse_json_object(line, where);
    for (const auto& [key, value] : object.items())
      if (key != "prompt" && key != "ids" && key != "max_new_tokens") unused.insert(shown(key));
    try {
      prompts.push_back(prompt_of(JsonValue(object, where), tokenizer, max_new_tokens));
      check_prompt(config, prompts.back().ids, prompts.back().max_new_tokens);
    } catch (const Error& error) {
      const std::string_view what = error.what();
      throw Error("{}", what.starts_with(where) ? std::string(what) : fmt::format("{}: {}", where, what));
    }
  }
  if (prompts.empty()) throw Error("{}: no prompt in it; give a line of JSON for each", path.string());
  if (speaks && !unused.empty()) say("{}: zeepo does not act on {}\n", path.string(), fmt::join(unused, ", "));
  return prompts;
}

}  // namespace zeepo::cli
