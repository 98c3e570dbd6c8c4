// Text to tokens and back on one core, in MB/s: bench_tokenize [TOKENIZER.JSON TEXT.TXT] [--benchmark_...]
//
// The text should be some 100 MB of what the tokenizer was made for; without arguments it is zeepo's own sources and a
// small tokenizer of GPT-2's form. Beside it runs the least that any tokenizer must do, one look at every byte; another
// tokenizer's MB/s over the same two files gives the ratio against a peer.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/data/tokenizer.h"
#include "zeepo/data/utf8.h"

namespace zeepo {
namespace {

void count_bytes(benchmark::State& state, const std::string& text) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(text.size()));
}

void look_at_every_byte(benchmark::State& state, const std::string& text) {
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(valid_utf8_prefix(text));
  count_bytes(state, text);
}

void encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  std::size_t tokens = 0;
  for ([[maybe_unused]] auto _ : state) {
    Encoder encoder(tokenizer);
    encoder.encode(text, [&](std::span<const std::int32_t> ids) { tokens += ids.size(); });
  }
  count_bytes(state, text);
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
}

void decode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids));
  count_bytes(state, text);
}

std::string own_sources() {
  namespace fs = std::filesystem;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(ZEEPO_TEST_DATA) / "../../src"))
    if (entry.is_regular_file()) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const auto& path : paths) text += read_text(path);
  return text;
}

void run(const Tokenizer& tokenizer, const std::string& text) {
  const auto add = [](const char* name, auto function) {
    benchmark::RegisterBenchmark(name, function)->Unit(benchmark::kMillisecond);
  };
  add("look at every byte", [&](benchmark::State& state) { look_at_every_byte(state, text); });
  add("encode", [&](benchmark::State& state) { encode(state, tokenizer, text); });
  add("decode", [&](benchmark::State& state) { decode(state, tokenizer, text); });
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace
}  // namespace zeepo

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 1 && argc != 3) {
    fmt::print(stderr, "usage: bench_tokenize [TOKENIZER.JSON TEXT.TXT]\n");
    return 2;
  }
  try {
    const auto tokenizer = argc == 3 ? argv[1] : ZEEPO_TEST_DATA "/golden/tokenizers/gpt2-bpe/tokenizer.json";
    const auto text = argc == 3 ? zeepo::read_text(argv[2], std::int64_t{1} << 40) : zeepo::own_sources();
    zeepo::run(zeepo::Tokenizer::load(tokenizer), text);
  } catch (const zeepo::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
