// zeepo tokenize: text to a token file, and back.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/base/say.h"
#include "zeepo/cli/commands.h"
#include "zeepo/data/documents.h"
#include "zeepo/data/model_tokens.h"
#include "zeepo/data/token_file.h"
#include "zeepo/data/tokenizer.h"

namespace zeepo::cli {
namespace {

struct TokenizeOptions {
  std::filesystem::path model, input, output;
  bool eos = false, decode = false, json = false;
};

struct Counts {
  std::int64_t tokens = 0, documents = 0;
};

// A line on the terminal that follows the work; nothing where stderr is not one, or the work is short.
class Progress {
 public:
  ~Progress() {
    if (shown_) say("\n");
  }

  void show(std::int64_t tokens) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - last_ < std::chrono::milliseconds(500)) return;
    last_ = now;
    shown_ = true;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double millions = static_cast<double>(tokens) * 1e-6;
    say_anew("tokenize: {:.1f} M tokens, {:.2f} M/s ", millions, millions / seconds);
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_ = start_;
  bool shown_ = false;
};

Counts encode(const TokenizeOptions& options, const Tokenizer& tokenizer, std::int64_t vocab_size) {
  std::vector<std::int32_t> end;
  if (options.eos) {
    const auto id = end_token(options.model, tokenizer);
    if (!id)
      throw Error(
          "tokenize: --eos: {} names no end token (eos_token_id in generation_config.json or config.json, "
          "eos_token in tokenizer_config.json)",
          options.model.string());
    end.push_back(*id);
  }
  Counts counts;
  Progress progress;
  Encoder encoder(tokenizer);
  TokenFileWriter writer(options.output, vocab_size);
  for_each_document(options.input, [&](std::string_view text) {
    encoder.encode(text, [&](std::span<const std::int32_t> ids) {
      writer.append(ids);
      progress.show(writer.tokens());
    });
    writer.append(end);
    ++counts.documents;
  });
  writer.commit();
  counts.tokens = writer.tokens();
  return counts;
}

std::int64_t decode_tokens(const TokenFile& tokens, const Tokenizer& tokenizer, OutputFile& text) {
  constexpr std::int64_t kChunk = 64 * 1024;
  StreamDecoder decoder(tokenizer, Special::keep);
  Progress progress;
  std::vector<std::int32_t> ids;
  for (std::int64_t begin = 0; begin < tokens.tokens(); begin += kChunk) {
    ids.resize(static_cast<std::size_t>(std::min(kChunk, tokens.tokens() - begin)));
    tokens.read(begin, ids);
    std::string chunk;
    for (const std::int32_t id : ids) chunk += decoder.push(id);
    text.write(chunk);
    progress.show(begin);
  }
  text.write(decoder.finish());
  return tokens.tokens();
}

// A file of no tokens is that of an empty text, which training has no use for.
Counts decode(const TokenizeOptions& options, const Tokenizer& tokenizer, std::int64_t vocab_size) {
  const bool empty = InputFile(options.input).bytes() == 0;
  OutputFile text(options.output);
  const std::int64_t tokens = empty ? 0 : decode_tokens(TokenFile(options.input, vocab_size), tokenizer, text);
  text.commit();
  return {tokens, 1};
}

// By whatever names.
bool same_file(const std::filesystem::path& one, const std::filesystem::path& other) {
  std::error_code absent;
  return one == other || std::filesystem::equivalent(one, other, absent);
}

void tokenize(const TokenizeOptions& options) {
  if (options.decode && options.eos) throw UsageError("tokenize: --eos has no meaning with --decode");
  if (!options.decode && !is_text_file(options.input))
    throw UsageError("tokenize: --input {}: must be .txt or .jsonl (or a token file, with --decode)",
                     options.input.string());
  if (same_file(options.input, options.output))
    throw UsageError("tokenize: --output {}: is the input", options.output.string());
  const Tokenizer tokenizer = Tokenizer::load(options.model / "tokenizer.json");
  const std::int64_t vocab_size = vocabulary_size(options.model, tokenizer);
  const Counts counts =
      options.decode ? decode(options, tokenizer, vocab_size) : encode(options, tokenizer, vocab_size);
  if (options.json) {
    fmt::print("{{\"tokens\":{},\"documents\":{}}}\n", counts.tokens, counts.documents);
  } else if (options.decode) {
    fmt::print("{}: the text of {} tokens\n", options.output.string(), counts.tokens);
  } else {
    fmt::print("{}: {} tokens of {} documents\n", options.output.string(), counts.tokens, counts.documents);
  }
}

}  // namespace

void add_tokenize(CLI::App& program) {
  CLI::App* command = program.add_subcommand("tokenize", "Turn text into a token file for --data, or back");
  const auto options = std::make_shared<TokenizeOptions>();
  command->add_option("--model", options->model, "directory with tokenizer.json")->required();
  command->add_option("--input", options->input, ".txt, .jsonl with \"text\"; with --decode a token file")->required();
  command->add_option("--output", options->output, "the token file; with --decode the text")->required();
  command->add_flag("--eos", options->eos, "end each document with the model's end token");
  command->add_flag("--decode", options->decode, "from a token file to text, special tokens included");
  command->add_flag("--json", options->json, "print {\"tokens\":n,\"documents\":n}");
  command->callback([options] { tokenize(*options); });
}

}  // namespace zeepo::cli
