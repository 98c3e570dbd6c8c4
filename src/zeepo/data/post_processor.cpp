#include "zeepo/data/post_processor.h"

#include "zeepo/base/error.h"
#include "zeepo/data/json_value.h"
#include "zeepo/data/vocabulary.h"

namespace zeepo {
namespace {

PostProcessor parse_template(const JsonValue& json) {
  PostProcessor result;
  bool seen_text = false;
  for (const JsonValue& piece : json.at("single").items()) {
    if (piece.find("Sequence")) {
      if (seen_text) throw Error("{}: the text twice in one template is not supported", piece.where());
      seen_text = true;
      continue;
    }
    const std::string name = piece.at("SpecialToken").at("id").string();
    for (const JsonValue& id : json.at("special_tokens").at(name).at("ids").items())
      (seen_text ? result.after : result.before)
          .push_back(static_cast<std::int32_t>(id.integer(0, kMaxVocabulary - 1)));
  }
  if (!seen_text) throw Error("{}.single: has no place for the text", json.where());
  return result;
}

}  // namespace

PostProcessor PostProcessor::parse(const JsonValue& json) {
  constexpr std::size_t kMostIds = 4096;
  const std::string type = json.type();
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return parse_template(json);
  if (type != "Sequence")
    throw Error("{}: post-processor \"{}\" is not supported; ByteLevel, TemplateProcessing and Sequence are",
                json.where(), type);
  PostProcessor all;
  for (const JsonValue& item : json.at("processors").items()) {
    if (item.type() == "Sequence") throw Error("{}: a Sequence within a Sequence is not supported", item.where());
    PostProcessor one = parse(item);
    one.before.insert(one.before.end(), all.before.begin(), all.before.end());
    all.before = std::move(one.before);
    all.after.insert(all.after.end(), one.after.begin(), one.after.end());
    if (all.before.size() + all.after.size() > kMostIds)
      throw Error("{}: adds more than {} tokens", json.where(), kMostIds);
  }
  return all;
}

}  // namespace zeepo
