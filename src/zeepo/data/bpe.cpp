#include "zeepo/data/bpe.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/data/byte_alphabet.h"
#include "zeepo/data/json_value.h"

namespace zeepo {
namespace {

constexpr std::int32_t kNone = -1;
constexpr std::size_t kLongestPiece = std::size_t{1} << 30;

void refuse_unsupported(const JsonValue& json) {
  const std::string type = json.type();
  if (!type.empty() && type != "BPE") throw Error("{}: model \"{}\" is not supported; BPE is", json.where(), type);
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto affix = json.find(key); affix && !affix->string().empty())
      throw Error("{}: \"{}\" is not supported", affix->where(), affix->string());
  if (const auto dropout = json.find("dropout"); dropout && dropout->raw() != 0)
    throw Error("{}: {} is not supported, must be null", dropout->where(), dropout->raw().dump());
}

// "a b", or ["a", "b"].
std::pair<std::string_view, std::string_view> sides_of(const nlohmann::json& merge) {
  const auto text = [](const nlohmann::json& value) { return std::string_view(value.get_ref<const std::string&>()); };
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {text(merge[0]), text(merge[1])};
  if (!merge.is_string()) return {};
  const std::string_view both = text(merge);
  const std::size_t space = both.find(' ');
  if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) return {};
  return {both.substr(0, space), both.substr(space + 1)};
}

}  // namespace

Bpe::Bpe(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_[static_cast<std::size_t>(byte)] = vocabulary_.find(spell_bytes({&c, 1})).value_or(kNone);
  }
}

Bpe Bpe::parse(const JsonValue& json) {
  refuse_unsupported(json);
  Bpe bpe(Vocabulary::parse(json.at("vocab")));
  bpe.add_merges(json.at("merges"));
  if (const auto ignore = json.find("ignore_merges")) bpe.ignore_merges_ = ignore->boolean();
  return bpe;
}

void Bpe::add_merges(const JsonValue& json) {
  if (!json.is_array()) throw Error("{}: must be a list", json.where());
  merges_ = MergeTable(json.raw().size());
  const auto id_of = [&](std::string_view spelling, std::size_t rank) {
    if (const auto id = vocabulary_.find(spelling)) return *id;
    throw Error("{}[{}]: {:?} is not in the vocabulary", json.where(), rank, spelling);
  };
  std::uint32_t rank = 0;
  for (const auto& merge : json.raw()) {
    if (rank == 0 && merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) continue;
    const auto [left, right] = sides_of(merge);
    if (left.empty() || right.empty())
      throw Error("{}[{}]: must be two tokens, \"a b\" or [\"a\", \"b\"]", json.where(), rank);
    const std::int32_t merged = id_of(std::string(left).append(right), rank);
    merges_.insert(id_of(left, rank), id_of(right, rank), {rank, merged});
    ++rank;
  }
}

void Bpe::encode(std::string_view piece, BpeScratch& scratch, std::vector<std::int32_t>& ids) const {
  if (ignore_merges_)
    if (const auto id = vocabulary_.find(spell_bytes(piece))) {
      ids.push_back(*id);
      return;
    }
  start(piece, scratch);
  auto& [symbols, queue] = scratch;
  const auto smallest_first = std::greater<>{};
  std::ranges::make_heap(queue, smallest_first);
  while (!queue.empty()) {
    std::ranges::pop_heap(queue, smallest_first);
    const std::uint64_t top = queue.back();
    queue.pop_back();
    const auto at = static_cast<std::int32_t>(top & 0xFFFFFFFFu);
    auto& left = symbols[static_cast<std::size_t>(at)];
    if (left.id == kNone || left.next == kNone) continue;
    auto& right = symbols[static_cast<std::size_t>(left.next)];
    const Merge* merge = merges_.find(left.id, right.id);
    // An entry whose pair has since become part of a longer token.
    if (merge == nullptr || merge->rank != top >> 32) continue;
    left.id = merge->id;
    left.next = right.next;
    right.id = kNone;
    if (left.next != kNone) symbols[static_cast<std::size_t>(left.next)].previous = at;
    if (left.previous != kNone) queue_pair(left.previous, scratch);
    queue_pair(at, scratch);
  }
  for (const auto& symbol : symbols)
    if (symbol.id != kNone) ids.push_back(symbol.id);
}

void Bpe::start(std::string_view piece, BpeScratch& scratch) const {
  if (piece.size() > kLongestPiece)
    throw Error("tokenizer: one word of {} bytes; at most {} are supported", piece.size(), kLongestPiece);
  auto& symbols = scratch.symbols;
  symbols.clear();
  scratch.queue.clear();
  for (std::int32_t at = 0; const char byte : piece) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    if (id == kNone)
      throw Error("tokenizer: the vocabulary has no token for byte 0x{:02x}, spelled {:?}",
                  static_cast<unsigned char>(byte), spell_bytes({&byte, 1}));
    symbols.push_back({id, at - 1, at + 1});
    ++at;
  }
  if (symbols.empty()) return;
  symbols.back().next = kNone;
  for (std::size_t at = 0; at + 1 < symbols.size(); ++at)
    if (const Merge* merge = merges_.find(symbols[at].id, symbols[at + 1].id))
      scratch.queue.push_back(std::uint64_t{merge->rank} << 32 | at);
}

void Bpe::queue_pair(std::int32_t at, BpeScratch& scratch) const {
  const auto& left = scratch.symbols[static_cast<std::size_t>(at)];
  if (left.next == kNone) return;
  const Merge* merge = merges_.find(left.id, scratch.symbols[static_cast<std::size_t>(left.next)].id);
  if (merge == nullptr) return;
  scratch.queue.push_back(std::uint64_t{merge->rank} << 32 | static_cast<std::uint32_t>(at));
  std::ranges::push_heap(scratch.queue, std::greater<>{});
}

}  // namespace zeepo
