// Byte-level BPE from a Hugging Face tokenizer.json: GPT-2's form and the regular-expression form of Llama 3 and Qwen.
//
// Ids and text are those of the tokenizers library, both ways; what the file asks for and zeepo cannot do is an Error
// when it is read. The file is not trusted. Text must be valid UTF-8: an Error names the offset of the first byte that
// is not. A Tokenizer is read-only and may be shared by threads; each thread has its own Encoder and StreamDecoder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zeepo {

// Whether the special tokens of the post-processor go around a text.
enum class AddSpecial { no, yes };
// What decoding does with special tokens.
enum class Special { keep, skip };

class Tokenizer {
 public:
  static Tokenizer load(const std::filesystem::path& tokenizer_json);
  // `name` is what errors call the file.
  static Tokenizer parse(std::string_view json, const std::string& name);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // The largest id plus one, added tokens included.
  std::int64_t vocab_size() const;
  std::optional<std::int32_t> id_of(std::string_view token) const;

  // For many texts an Encoder is faster: it remembers words.
  std::vector<std::int32_t> encode(std::string_view text, AddSpecial special = AddSpecial::no) const;
  // Bytes that are not UTF-8 become U+FFFD; an id without a token gives nothing.
  std::string decode(std::span<const std::int32_t> ids, Special special = Special::keep) const;
  // What a token stands for: perhaps a part of a character.
  std::string bytes(std::int32_t id) const;

 private:
  friend class Encoder;
  friend class StreamDecoder;
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

// Encodes text after text. Borrows the tokenizer.
class Encoder {
 public:
  using Sink = std::function<void(std::span<const std::int32_t> ids)>;

  explicit Encoder(const Tokenizer& tokenizer);
  ~Encoder();
  Encoder(Encoder&&) noexcept;
  Encoder& operator=(Encoder&&) = delete;

  // Hands the ids to `sink` in stretches of some thousands, so that a long text needs no list of all of them.
  void encode(std::string_view text, const Sink& sink);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Text as it is generated, token by token: what push() and finish() return, joined, is what decode() returns.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, Special special = Special::skip)
      : parts_(tokenizer.parts_.get()), special_(special) {}

  // The characters that are complete with this token.
  std::string push(std::int32_t id);
  // What was left incomplete, as U+FFFD.
  std::string finish();

 private:
  const Tokenizer::Parts* parts_;
  Special special_;
  std::string pending_;
};

}  // namespace zeepo
