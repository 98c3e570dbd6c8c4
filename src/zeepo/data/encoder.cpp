#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/data/tokenizer.h"
#include "zeepo/data/tokenizer_parts.h"
#include "zeepo/data/utf8.h"
#include "zeepo/data/word_cache.h"

namespace zeepo {
namespace {

constexpr std::size_t kStretch = 16 * 1024;

}  // namespace

struct Encoder::State {
  explicit State(const Tokenizer::Parts& tokenizer_parts) : parts(tokenizer_parts) {}

  void encode_text(std::string_view text, const Sink& sink);
  void encode_normal(std::string_view text, const Sink& sink);
  void encode_piece(std::string_view piece, const Sink& sink);
  void put(std::int32_t id, const Sink& sink);
  void flush(const Sink& sink);

  const Tokenizer::Parts& parts;
  RegexScratch regex_scratch;
  BpeScratch bpe_scratch;
  WordCache cache;
  std::vector<std::int32_t> ids;  // not yet handed out
};

Encoder::Encoder(const Tokenizer& tokenizer) : state_(std::make_unique<State>(*tokenizer.parts_)) {}
Encoder::~Encoder() = default;
Encoder::Encoder(Encoder&&) noexcept = default;

void Encoder::encode(std::string_view text, const Sink& sink) {
  const std::size_t valid = valid_utf8_prefix(text);
  if (valid != text.size())
    throw Error("tokenizer: the text is not valid UTF-8 at byte {} of {} (0x{:02x})", valid, text.size(),
                static_cast<unsigned char>(text[valid]));
  state_->ids.clear();
  state_->encode_text(text, sink);
  state_->flush(sink);
}

void Encoder::State::encode_text(std::string_view text, const Sink& sink) {
  parts.added.in_text().split(text, [&](std::string_view part, std::optional<std::int32_t> id) {
    if (id) return put(*id, sink);
    const auto normal = parts.normalizer.normalize(part);
    encode_normal(normal ? std::string_view(*normal) : part, sink);
  });
}

void Encoder::State::encode_normal(std::string_view text, const Sink& sink) {
  parts.added.in_normal_form().split(text, [&](std::string_view part, std::optional<std::int32_t> id) {
    if (id) return put(*id, sink);
    parts.pre_tokenizer.run(part, regex_scratch, [&](std::string_view piece) { encode_piece(piece, sink); });
  });
}

void Encoder::State::encode_piece(std::string_view piece, const Sink& sink) {
  if (const auto known = cache.find(piece); !known.empty()) {
    ids.insert(ids.end(), known.begin(), known.end());
  } else {
    const std::size_t before = ids.size();
    parts.bpe.encode(piece, bpe_scratch, ids);
    cache.insert(piece, std::span(ids).subspan(before));
  }
  if (ids.size() >= kStretch) flush(sink);
}

void Encoder::State::put(std::int32_t id, const Sink& sink) {
  ids.push_back(id);
  if (ids.size() >= kStretch) flush(sink);
}

void Encoder::State::flush(const Sink& sink) {
  if (!ids.empty()) sink(ids);
  ids.clear();
}

}  // namespace zeepo
