#include "zeepo/data/token_data.h"

#include <utility>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/data/documents.h"

namespace zeepo {

TokenFile open_token_data(const std::filesystem::path& path, std::int64_t vocab_size, const Tokenizer* tokenizer,
                          std::optional<std::int32_t> eos) {
  if (path.extension() == ".bin") return {path, vocab_size};
  if (!is_text_file(path))
    throw Error("{}: \"{}\" is not known; data is .bin (tokens), .txt or .jsonl with \"text\"", path.string(),
                path.extension().string());
  if (tokenizer == nullptr)
    throw Error("{}: text needs a tokenizer, and the model directory has no tokenizer.json; give a .bin",
                path.string());
  if (path.extension() == ".txt") eos.reset();

  ScratchFile scratch;
  Encoder encoder(*tokenizer);
  std::vector<std::byte> packed;
  std::int64_t position = 0;
  const auto append = [&](std::span<const std::int32_t> ids) {
    packed.clear();
    pack_tokens(ids, vocab_size, path.string(), position, packed);
    scratch.write(packed);
    position += static_cast<std::int64_t>(ids.size());
  };
  for_each_document(path, [&](std::string_view text) {
    encoder.encode(text, append);
    if (eos) append({&*eos, 1});
  });
  return {std::move(scratch), path.string(), vocab_size};
}

}  // namespace zeepo
