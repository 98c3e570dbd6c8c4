#include "zeepo/data/model_tokens.h"

#include <string>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/data/json_value.h"
#include "zeepo/data/vocabulary.h"

namespace zeepo {
namespace {

constexpr std::int64_t kLargestJson = std::int64_t{64} << 20;

std::optional<nlohmann::json> read_json(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  return parse_json(read_text(path, kLargestJson), path.string());
}

std::optional<std::int32_t> eos_token_id(const JsonValue& config) {
  const auto found = config.find("eos_token_id");
  if (!found) return std::nullopt;
  const auto id_of = [](const JsonValue& value) {
    return static_cast<std::int32_t>(value.integer(0, kMaxVocabulary - 1));
  };
  if (!found->is_array()) return id_of(*found);
  const auto ids = found->items();
  if (ids.empty()) return std::nullopt;
  return id_of(ids.front());
}

}  // namespace

std::int64_t vocabulary_size(const std::filesystem::path& model, const Tokenizer& tokenizer) {
  const auto path = model / "config.json";
  if (const auto config = read_json(path))
    if (const auto size = JsonValue(*config, path.string()).find("vocab_size")) return size->integer(1, kMaxVocabulary);
  return tokenizer.vocab_size();
}

std::optional<std::int32_t> end_token(const std::filesystem::path& model, const Tokenizer& tokenizer) {
  for (const char* name : {"generation_config.json", "config.json"})
    if (const auto config = read_json(model / name))
      if (const auto id = eos_token_id(JsonValue(*config, (model / name).string()))) return id;
  const auto path = model / "tokenizer_config.json";
  const auto config = read_json(path);
  if (!config) return std::nullopt;
  const auto token = JsonValue(*config, path.string()).find("eos_token");
  if (!token) return std::nullopt;
  const std::string text = token->is_string() ? token->string() : token->at("content").string();
  const auto id = tokenizer.id_of(text);
  if (!id) throw Error("{}: {:?} is not a token of tokenizer.json", token->where(), text);
  return id;
}

}  // namespace zeepo
