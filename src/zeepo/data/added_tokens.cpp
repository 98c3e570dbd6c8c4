#include "zeepo/data/added_tokens.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/data/json_value.h"

namespace zeepo {
namespace {

constexpr std::size_t kLongestContent = 4096;

AddedToken token_of(const JsonValue& json, const Normalizer& normalizer) {
  const auto flag = [&](std::string_view key) {
    const auto found = json.find(key);
    return found && found->boolean();
  };
  AddedToken token;
  token.content = json.at("content").string();
  token.single_word = flag("single_word");
  token.lstrip = flag("lstrip");
  token.rstrip = flag("rstrip");
  const auto normalized = json.find("normalized");
  token.normalized = normalized ? normalized->boolean() : !flag("special");
  token.form = token.normalized ? normalizer.normalize(token.content).value_or(token.content) : token.content;
  if (token.content.size() > kLongestContent)
    throw Error("{}: content of {} bytes; at most {} are supported", json.where(), token.content.size(),
                kLongestContent);
  return token;
}

}  // namespace

AddedTokens AddedTokens::parse(const JsonValue& json, const Vocabulary& vocabulary, const Normalizer& normalizer) {
  AddedTokens result;
  auto next_id = static_cast<std::int32_t>(vocabulary.size());
  for (const JsonValue& item : json.items()) {
    AddedToken token = token_of(item, normalizer);
    const auto declared = static_cast<std::int32_t>(item.at("id").integer(0, kMaxVocabulary - 1));
    if (token.content.empty()) continue;
    auto id = result.find(token.content);
    if (!id) id = vocabulary.find(token.content);
    if (!id) id = next_id++;
    if (*id != declared)
      throw Error("{}: id {} of {:?} must be {}, its id in the vocabulary or the next one after it", item.where(),
                  declared, token.content, *id);
    if (const auto special = item.find("special"); special && special->boolean()) result.special_.insert(token.content);
    result.ids_[token.content] = *id;
    result.by_id_[*id] = std::move(token);
  }
  for (const auto& [id, token] : result.by_id_)
    (token.normalized ? result.in_normal_form_ : result.in_text_).add(id, token);
  result.in_text_.prepare();
  result.in_normal_form_.prepare();
  return result;
}

std::optional<std::int32_t> AddedTokens::find(std::string_view content) const {
  const auto found = ids_.find(content);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* AddedTokens::text(std::int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second.form;
}

}  // namespace zeepo
