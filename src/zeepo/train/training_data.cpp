#include "zeepo/train/training_data.h"

#include <string_view>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/chat/json_text.h"
#include "zeepo/chat/training_example.h"
#include "zeepo/data/documents.h"
#include "zeepo/data/token_data.h"

namespace zeepo {
namespace {

using jinja::Dict;
using jinja::Value;

enum class LineKind { text, messages, completion };

std::string_view name_of(LineKind kind) {
  constexpr std::string_view kNames[] = {"\"text\"", "\"messages\"", "\"prompt\" and \"completion\""};
  return kNames[static_cast<std::size_t>(kind)];
}

LineKind kind_of(const Value& line, const std::string& where) {
  const Dict* members = line.dict();
  if (members == nullptr) throw Error("{}: is a {}, must be an object", where, type_name(line));
  const auto has = [&](std::string_view name) {
    const Value* found = members->member(name);
    return found != nullptr && !found->is_none();
  };
  const bool completion = has("prompt") && has("completion");
  const int kinds = (has("text") ? 1 : 0) + (has("messages") ? 1 : 0) + (completion ? 1 : 0);
  if (kinds > 1)
    throw Error(
        "{}: has more than one of \"text\", \"messages\", and \"prompt\" with \"completion\"; leave one of them",
        where);
  if (kinds == 0) throw Error("{}: has no \"text\", no \"messages\", and no \"prompt\" with \"completion\"", where);
  return has("text") ? LineKind::text : completion ? LineKind::completion : LineKind::messages;
}

// The lines that are not blank, with their place.
template <class Each>
void for_each_line(const std::filesystem::path& path, Each&& each) {
  LineReader lines(path);
  while (const auto line = lines.next()) {
    if (line->find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}:{}", path.string(), lines.number());
    if (!each(jinja::parse_json_value(*line, where), where)) return;
  }
}

// Of its first line.
std::optional<LineKind> kind_of_file(const std::filesystem::path& path) {
  std::optional<LineKind> kind;
  for_each_line(path, [&](const Value& line, const std::string& where) {
    kind = kind_of(line, where);
    return false;
  });
  return kind;
}

TrainingData encode_examples(const std::filesystem::path& path, LineKind kind, ExampleEncoder& encoder,
                             std::int64_t vocab_size) {
  ScratchFile tokens;
  LossMask mask;
  std::vector<std::byte> packed;
  for_each_line(path, [&](const Value& line, const std::string& where) {
    if (const LineKind own = kind_of(line, where); own != kind)
      throw Error("{}: has {}, and the first line has {}; all lines of a file must be of one kind", where, name_of(own),
                  name_of(kind));
    const TrainingExample example = encoder.encode(line, where);
    packed.clear();
    pack_tokens(example.ids, vocab_size, path.string(), mask.tokens(), packed);
    tokens.write(packed);
    for (const TokenRun& run : example.runs) mask.append(run.tokens, run.counts);
    return true;
  });
  mask.finish();
  if (mask.counted() == 0)
    throw Error("{}: none of its {} tokens counts in the loss: no line has words of the assistant, or a completion",
                path.string(), mask.tokens());
  return {TokenFile(std::move(tokens), path.string(), vocab_size), std::move(mask)};
}

}  // namespace

TrainingData open_training_data(const std::filesystem::path& path, const std::filesystem::path& model,
                                const ModelConfig& config) {
  std::optional<Tokenizer> tokenizer;
  if (is_text_file(path)) {
    if (!file_exists(model / "tokenizer.json"))
      throw Error("{}: text needs a tokenizer, and {} has no tokenizer.json; add it, or give tokens (.bin)",
                  path.string(), model.string());
    tokenizer = Tokenizer::load(model / "tokenizer.json");
  }
  std::optional<std::int32_t> eos;
  if (!config.eos.empty() && config.eos.front() < config.vocab) eos = config.eos.front();
  if (path.extension() == ".jsonl")
    if (const auto kind = kind_of_file(path); kind && *kind != LineKind::text) {
      const std::optional<ChatTemplate> chat = ChatTemplate::load(model);
      ExampleEncoder encoder(*tokenizer, chat ? &*chat : nullptr, eos);
      return encode_examples(path, *kind, encoder, config.vocab);
    }
  return {open_token_data(path, config.vocab, tokenizer ? &*tokenizer : nullptr, eos), std::nullopt};
}

}  // namespace zeepo
