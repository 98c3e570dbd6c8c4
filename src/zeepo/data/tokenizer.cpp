#include "zeepo/data/tokenizer.h"

#include <algorithm>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/data/byte_alphabet.h"
#include "zeepo/data/json_value.h"
#include "zeepo/data/tokenizer_parts.h"
#include "zeepo/data/utf8.h"

namespace zeepo {
namespace {

constexpr std::int64_t kLargestTokenizer = std::int64_t{512} << 20;

bool parse_decoder(const JsonValue& json) {
  if (json.type() == "ByteLevel") return true;
  if (json.type() == "Sequence") {
    const auto decoders = json.at("decoders").items();
    if (decoders.size() == 1 && decoders[0].type() == "ByteLevel") return true;
  }
  throw Error("{}: decoder \"{}\" is not supported; ByteLevel is", json.where(), json.type());
}

// Asked first: such a file is of another kind in each of its parts, and the first of these would be named instead.
void refuse_sentencepiece(const JsonValue& model) {
  if (const auto fallback = model.find("byte_fallback"); fallback && fallback->boolean())
    throw Error(
        "{}: byte_fallback is not supported: this is SentencePiece's BPE (Llama 2, Mistral 7B), and zeepo reads "
        "byte-level BPE; make ids with the model's own tokenizer, and give these: --data FILE.bin, or --ids",
        model.where());
}

}  // namespace

std::unique_ptr<const Tokenizer::Parts> Tokenizer::Parts::parse(std::string_view text, const std::string& name) {
  const nlohmann::json document = parse_json(text, name);
  const JsonValue json(document, name);
  if (const auto version = json.find("version"); version && version->string() != "1.0")
    throw Error("{}: \"{}\" is not supported, must be \"1.0\"", version->where(), version->string());
  refuse_sentencepiece(json.at("model"));
  const auto normalizer_json = json.find("normalizer");
  Normalizer normalizer = normalizer_json ? Normalizer::parse(*normalizer_json) : Normalizer();
  PreTokenizer pre_tokenizer = PreTokenizer::parse(json.at("pre_tokenizer"));
  Bpe bpe = Bpe::parse(json.at("model"));
  const auto added_json = json.find("added_tokens");
  AddedTokens added = added_json ? AddedTokens::parse(*added_json, bpe.vocabulary(), normalizer) : AddedTokens();
  const auto post_json = json.find("post_processor");
  const auto decoder_json = json.find("decoder");
  return std::make_unique<Parts>(Parts{name, std::move(normalizer), std::move(pre_tokenizer), std::move(bpe),
                                       std::move(added), post_json ? PostProcessor::parse(*post_json) : PostProcessor{},
                                       decoder_json && parse_decoder(*decoder_json)});
}

void Tokenizer::Parts::append_bytes(std::int32_t id, Special special, std::string& out) const {
  if (!has_decoder) throw Error("{}: decoder is null, so that its tokens cannot be turned into text", name);
  const std::string* text = added.text(id);
  if (text == nullptr) text = bpe.vocabulary().spelling(id);
  if (text == nullptr || (special == Special::skip && added.is_special(*text))) return;
  out += unspell_bytes(*text).value_or(*text);
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  return parse(read_text(tokenizer_json, kLargestTokenizer), tokenizer_json.string());
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name) {
  return Tokenizer(Parts::parse(json, name));
}

std::int64_t Tokenizer::vocab_size() const {
  return std::int64_t{std::max(parts_->bpe.vocabulary().largest_id(), parts_->added.largest_id())} + 1;
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  if (const auto id = parts_->added.find(token)) return id;
  return parts_->bpe.vocabulary().find(token);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, AddSpecial special) const {
  std::vector<std::int32_t> ids;
  if (special == AddSpecial::yes) ids = parts_->post_processor.before;
  const auto append = [&](std::span<const std::int32_t> some) { ids.insert(ids.end(), some.begin(), some.end()); };
  Encoder(*this).encode(text, append);
  const auto& after = parts_->post_processor.after;
  if (special == AddSpecial::yes) append(after);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, Special special) const {
  std::string bytes, text;
  for (const std::int32_t id : ids) parts_->append_bytes(id, special, bytes);
  append_lossy(bytes, Rest::replaced, text);
  return text;
}

std::string Tokenizer::bytes(std::int32_t id) const {
  std::string bytes;
  parts_->append_bytes(id, Special::keep, bytes);
  return bytes;
}

std::string StreamDecoder::push(std::int32_t id) {
  parts_->append_bytes(id, special_, pending_);
  std::string text;
  pending_.erase(0, append_lossy(pending_, Rest::kept, text));
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  append_lossy(pending_, Rest::replaced, text);
  pending_.clear();
  return text;
}

}  // namespace zeepo
