// Text to tokens and back on one core, in MB/s: bench_tokenize TOKENIZER.JSON TEXT.TXT [--benchmark_...]
//
// The text should be some 100 MB of what the tokenizer was made for. Beside it runs the least that any tokenizer must
// do, one look at every byte; another tokenizer's MB/s over the same two files gives the ratio against a peer.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

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

void run(const char* tokenizer_path, const char* text_path) {
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_path);
  const std::string text = read_text(text_path, std::int64_t{1} << 40);
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
  if (argc != 3) {
    fmt::print(stderr, "usage: bench_tokenize TOKENIZER.JSON TEXT.TXT\n");
    return 2;
  }
  try {
    zeepo::run(argv[1], argv[2]);
  } catch (const zeepo::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
