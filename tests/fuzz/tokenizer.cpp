// A hostile tokenizer.json and hostile text: an Error or ids, never a crash, and ids that decode.
//
// The input is cut at its zero bytes: a letter that says what the rest is put into, the rest, and the text to encode.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/data/byte_alphabet.h"
#include "zeepo/data/tokenizer.h"

namespace {

using nlohmann::json;

json sound() {
  json document = json::parse(R"({"added_tokens": [], "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]},
      "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {}, "merges": ["a b", "ab c", "Ġ a"]}})");
  json& vocab = document["model"]["vocab"];
  for (int byte = 0; byte < 256; ++byte) vocab[zeepo::spell_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  vocab["Ġa"] = 258;
  return document;
}

std::vector<std::string> cut(std::string_view input) {
  std::vector<std::string> parts(1);
  for (const char c : input) {
    if (c == '\0' && parts.size() < 3) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  parts.resize(3);
  return parts;
}

std::string document_of(const std::string& kind, const std::string& part) {
  if (kind.empty() || kind[0] == 'f') return part;  // a whole file
  json document = sound();
  json value = json::parse(part, nullptr, false);
  json& split = document["pre_tokenizer"]["pretokenizers"][0];
  constexpr const char* kBehaviors[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"};
  if (kind.size() > 1) split["behavior"] = kBehaviors[static_cast<unsigned char>(kind[1]) % 5];
  if (kind.size() > 2) split["invert"] = kind[2] % 2 == 0;
  if (kind.size() > 3) document["normalizer"] = {{"type", "NFC"}};
  switch (kind[0]) {  // last: it may replace what `split` refers to
    case 'r': split["pattern"]["Regex"] = part; break;
    case 's': split["pattern"] = {{"String", part}}; break;
    case 'a': document["added_tokens"] = value; break;
    case 'n': document["normalizer"] = value; break;
    case 'p': document["pre_tokenizer"] = value; break;
    case 'o': document["post_processor"] = value; break;
    case 'd': document["decoder"] = value; break;
    default: document["model"] = value;
  }
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto parts = cut({reinterpret_cast<const char*>(data), size});
  try {
    const auto tokenizer = zeepo::Tokenizer::parse(document_of(parts[0], parts[1]), "input");
    const auto ids = tokenizer.encode(parts[2], zeepo::AddSpecial::yes);
    zeepo::StreamDecoder decoder(tokenizer, zeepo::Special::keep);
    std::string streamed;
    for (const std::int32_t id : ids) streamed += decoder.push(id);
    if (streamed + decoder.finish() != tokenizer.decode(ids)) __builtin_trap();
  } catch (const zeepo::Error&) {
  }
  return 0;
}
