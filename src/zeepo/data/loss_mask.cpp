#include "zeepo/data/loss_mask.h"

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr std::size_t kPendingBytes = 64 * 1024;

bool bit_of(const std::vector<std::byte>& bytes, std::int64_t place) {
  return (bytes[static_cast<std::size_t>(place / 8)] >> (place % 8) & std::byte{1}) != std::byte{0};
}

}  // namespace

void LossMask::append(std::int64_t tokens, bool counts) {
  if (counts) counted_ += tokens;
  for (std::int64_t i = 0; i < tokens; ++i) {
    if (tokens_ % 8 == 0) {
      if (pending_.size() == kPendingBytes) {
        file_.write(pending_);
        pending_.clear();
      }
      pending_.push_back(std::byte{0});
    }
    if (counts) pending_.back() |= std::byte{1} << (tokens_ % 8);
    ++tokens_;
  }
}

void LossMask::finish() {
  file_.write(pending_);
  pending_.clear();
}

std::vector<std::byte> LossMask::bytes_with(std::int64_t begin, std::int64_t count) const {
  if (begin < 0 || count < 0 || begin > tokens_ || count > tokens_ - begin)
    throw Error("loss mask: tokens {} to {} were asked for, it has {}", begin, begin + count, tokens_);
  const std::int64_t first = begin / 8, end = (begin + count + 7) / 8;
  std::vector<std::byte> bytes(static_cast<std::size_t>(end - first));
  file_.read(first, bytes);
  return bytes;
}

std::vector<bool> LossMask::read(std::int64_t begin, std::int64_t count) const {
  const std::vector<std::byte> bytes = bytes_with(begin, count);
  std::vector<bool> mask;
  for (std::int64_t i = 0; i < count; ++i) mask.push_back(bit_of(bytes, begin % 8 + i));
  return mask;
}

std::int64_t LossMask::count(std::int64_t begin, std::int64_t count) const {
  const std::vector<std::byte> bytes = bytes_with(begin, count);
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < count; ++i) counted += bit_of(bytes, begin % 8 + i) ? 1 : 0;
  return counted;
}

}  // namespace zeepo
