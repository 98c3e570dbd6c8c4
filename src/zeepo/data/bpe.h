// The "model" of tokenizer.json: byte-pair encoding of one piece of text.
//
// Read-only once parsed; each thread encodes with its own scratch. A piece of n bytes takes n·log n time, however long
// it is.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "zeepo/data/merge_table.h"
#include "zeepo/data/vocabulary.h"

namespace zeepo {

class JsonValue;

struct BpeScratch {
  struct Symbol {
    std::int32_t id;
    std::int32_t previous, next;  // positions, -1 at the ends
  };
  std::vector<Symbol> symbols;
  std::vector<std::uint64_t> queue;  // a heap of rank << 32 | position, the smallest first
};

class Bpe {
 public:
  // Throws Error naming what is not supported, or a merge of tokens that are not in the vocabulary.
  static Bpe parse(const JsonValue& json);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Appends the ids of `piece` to `ids`. Throws Error for a byte that the vocabulary has no token for.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<std::int32_t>& ids) const;

 private:
  explicit Bpe(Vocabulary vocabulary);
  void add_merges(const JsonValue& json);
  void start(std::string_view piece, BpeScratch& scratch) const;
  void queue_pair(std::int32_t at, BpeScratch& scratch) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_ids_{};
  bool ignore_merges_ = false;
};

}  // namespace zeepo
