// Which tokens of a run's data count as targets: a bit a token, in a temporary file beside the tokens.
//
// Written from front to back, then read at any place, from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "zeepo/data/scratch_file.h"

namespace zeepo {

class LossMask {
 public:
  // `tokens` more that count, or do not.
  void append(std::int64_t tokens, bool counts);
  // After the last append().
  void finish();

  std::int64_t tokens() const { return tokens_; }
  // Of all of them.
  std::int64_t counted() const { return counted_; }
  // One for each token of [begin, begin + count). Throws Error beyond the end.
  std::vector<bool> read(std::int64_t begin, std::int64_t count) const;
  std::int64_t count(std::int64_t begin, std::int64_t count) const;

 private:
  std::vector<std::byte> bytes_with(std::int64_t begin, std::int64_t count) const;

  ScratchFile file_;
  std::vector<std::byte> pending_;  // whole bytes, but for the last
  std::int64_t tokens_ = 0, counted_ = 0;
};

}  // namespace zeepo
