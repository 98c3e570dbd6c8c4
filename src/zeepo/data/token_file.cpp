#include "zeepo/data/token_file.h"

#include <algorithm>
#include <array>
#include <utility>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr std::size_t kChunkBytes = 16 * 1024;

[[noreturn]] void refuse(const std::string& name, std::int64_t position, std::int64_t id, std::int64_t vocab_size) {
  throw Error("{}: token {} is {}, but the vocabulary has {} entries; was it made with another tokenizer?", name,
              position, id, vocab_size);
}

std::int64_t bytes_of(const std::variant<InputFile, ScratchFile>& source) {
  return std::visit([](const auto& file) { return file.bytes(); }, source);
}

}  // namespace

std::size_t token_bytes(std::int64_t vocab_size) { return vocab_size <= 65'536 ? 2 : 4; }

void pack_tokens(std::span<const std::int32_t> ids, std::int64_t vocab_size, const std::string& name,
                 std::int64_t position, std::vector<std::byte>& out) {
  const std::size_t width = token_bytes(vocab_size);
  out.reserve(out.size() + ids.size() * width);
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size) refuse(name, position, id, vocab_size);
    for (std::size_t i = 0; i < width; ++i) out.push_back(static_cast<std::byte>(id >> (8 * i) & 0xFF));
    ++position;
  }
}

TokenFile::TokenFile(const std::filesystem::path& path, std::int64_t vocab_size)
    : TokenFile(std::variant<InputFile, ScratchFile>(InputFile(path)), path.string(), vocab_size) {}

TokenFile::TokenFile(ScratchFile tokens, std::string name, std::int64_t vocab_size)
    : TokenFile(std::variant<InputFile, ScratchFile>(std::move(tokens)), std::move(name), vocab_size) {}

TokenFile::TokenFile(std::variant<InputFile, ScratchFile> source, std::string name, std::int64_t vocab_size)
    : source_(std::move(source)), name_(std::move(name)), vocab_size_(vocab_size) {
  const auto width = static_cast<std::int64_t>(token_bytes(vocab_size));
  const std::int64_t bytes = bytes_of(source_);
  if (bytes == 0) throw Error("{}: has no tokens", name_);
  if (bytes % width != 0)
    throw Error("{}: {} bytes are not whole tokens of {} bytes (the vocabulary has {} entries)", name_, bytes, width,
                vocab_size);
  tokens_ = bytes / width;
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> out) const {
  if (begin < 0 || begin > tokens_ || static_cast<std::int64_t>(out.size()) > tokens_ - begin)
    throw Error("{}: tokens {} to {} were asked for, it has {}", name_, begin,
                begin + static_cast<std::int64_t>(out.size()), tokens_);
  const std::size_t width = token_bytes(vocab_size_);
  std::array<std::byte, kChunkBytes> chunk;
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), kChunkBytes / width);
    std::visit(
        [&](const auto& file) {
          file.read(begin * static_cast<std::int64_t>(width), std::span(chunk).first(count * width));
        },
        source_);
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t id = 0;
      for (std::size_t j = 0; j < width; ++j) id |= std::to_integer<std::uint32_t>(chunk[i * width + j]) << (8 * j);
      if (id >= vocab_size_) refuse(name_, begin + static_cast<std::int64_t>(i), id, vocab_size_);
      out[i] = static_cast<std::int32_t>(id);
    }
    out = out.subspan(count);
    begin += static_cast<std::int64_t>(count);
  }
}

void TokenFileWriter::append(std::span<const std::int32_t> ids) {
  packed_.clear();
  pack_tokens(ids, vocab_size_, file_.path().string(), tokens_, packed_);
  file_.write(packed_);
  tokens_ += static_cast<std::int64_t>(ids.size());
}

}  // namespace zeepo
