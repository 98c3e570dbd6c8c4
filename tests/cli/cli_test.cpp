// The program as scripts see it: exit codes, what is on stdout and on stderr, and what is left after a fault.
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_data.h"
#include "tests/support/test_directory.h"
#include "zeepo/train/option_table.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

Finished zeepo_with(const Arguments& arguments, const Limits& limits = {}) {
  return run_program(kProgram, arguments, limits);
}

std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const Json parsed = Json::parse(line, nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << line;
    lines.push_back(parsed);
  }
  return lines;
}

// The command and its options, each default only where it is not given.
Arguments command(const std::string& name, const std::vector<std::pair<std::string, std::string>>& defaults,
                  const Arguments& given) {
  Arguments arguments{name};
  for (const auto& [option, value] : defaults)
    if (std::ranges::find(given, option) == given.end()) arguments.insert(arguments.end(), {option, value});
  arguments.insert(arguments.end(), given.begin(), given.end());
  return arguments;
}

// `train` on a golden model in a few small steps.
Arguments train(const Arguments& given, const fs::path& model = golden("gpt2-tiny")) {
  return command("train",
                 {{"--model", model.string()},
                  {"--data", (golden("gpt2-tiny") / "tokens.bin").string()},
                  {"--steps", "2"},
                  {"--seq-len", "16"},
                  {"--micro-batch", "2"},
                  {"--memory", "device=64MiB"},
                  {"--threads", "2"}},
                 given);
}

Arguments generate(const Arguments& given, const fs::path& model = golden("gpt2-tiny")) {
  return command("generate", {{"--model", model.string()}, {"--memory", "device=64MiB"}, {"--threads", "2"}}, given);
}

// One readable message that names these, and nothing like a stack dump.
void expect_failure(const Finished& finished, int code, const std::vector<std::string>& named) {
  EXPECT_EQ(finished.code, code) << finished.err;
  EXPECT_FALSE(finished.err.empty());
  for (const auto& part : named) EXPECT_TRUE(names(finished.err, part));
  for (const char* dump : {"terminate", "what()", "Aborted", "Segmentation", "AddressSanitizer", "runtime error"})
    EXPECT_EQ(finished.err.find(dump), std::string::npos) << finished.err;
}

// The last line of stderr is the error; before it there may be what the run told of itself.
std::string error_line(const Finished& finished) {
  std::string text = finished.err;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

fs::path copy_of(const TestDirectory& directory, const std::string& model = "gpt2-tiny") {
  const fs::path copy = directory.path() / model;
  fs::copy(golden(model), copy, fs::copy_options::recursive);
  return copy;
}

std::vector<std::string> listing(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Help, OfTheProgramAndEveryCommandGoesToStdout) {
  for (const Arguments& arguments :
       {Arguments{"--help"}, {"train", "--help"}, {"generate", "--help"}, {"tokenize", "--help"}, {"--version"}}) {
    const auto finished = zeepo_with(arguments);
    EXPECT_EQ(finished.code, 0) << arguments[0];
    EXPECT_FALSE(finished.out.empty());
    EXPECT_TRUE(finished.err.empty()) << finished.err;
  }
  for (const char* option : {"--seq-len", "--micro-batch", "--grad-accum", "--no-shuffle", "--betas", "--momentum",
                             "--weight-decay", "--clip", "--schedule", "--warmup", "--dtype", "--device", "--memory",
                             "--activation-checkpointing", "--log", "--output", "--output-dtype", "--from-scratch"})
    EXPECT_TRUE(names(zeepo_with({"train", "--help"}).out, option));
  const std::string help = zeepo_with({"train", "--help"}).out;
  for (const TrainOption& option : option_table()) {
    if (!option.on_command_line()) continue;
    EXPECT_TRUE(names(help, "  " + option.name + " ", option.help, option.otherwise, title_of(option.group)));
    const std::string standard = option.text(TrainOptions{});
    if (!option.is_flag && option.otherwise.empty() && !standard.empty()) {
      EXPECT_TRUE(names(help, fmt::format("{} {}={}", option.name, option.type, standard)));
    }
  }
}

// What the program writes to a terminal of 80 columns.
std::string on_a_terminal(const std::string& command) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) return "";
  const winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  ::ioctl(terminal, TIOCSWINSZ, &size);
  const int other_end = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(other_end, STDOUT_FILENO);
    ::execl(kProgram, kProgram, command.c_str(), "--help", nullptr);
    ::_exit(kNotStarted);
  }
  ::close(other_end);
  std::string text;
  char piece[4096];
  for (ssize_t n = 0; (n = ::read(terminal, piece, sizeof piece)) > 0;) text.append(piece, static_cast<std::size_t>(n));
  ::waitpid(child, nullptr, 0);
  ::close(terminal);
  std::erase(text, '\r');
  return text;
}

TEST(Help, FitsATerminal) {
  for (const char* name : {"train", "plan", "generate", "serve"}) {
    const std::string whole = zeepo_with({name, "--help"}).out, folded = on_a_terminal(name);
    ASSERT_FALSE(folded.empty()) << name;
    std::istringstream lines(folded);
    for (std::string line; std::getline(lines, line);) {
      const bool example = line.find("zeepo ") != std::string::npos || line.find("curl ") != std::string::npos;
      EXPECT_TRUE(line.size() <= 80 || example) << line;
    }
    const auto words = [](const std::string& text) {
      std::istringstream stream(text);
      return std::vector<std::string>(std::istream_iterator<std::string>(stream), {});
    };
    EXPECT_EQ(words(folded), words(whole)) << name;
  }
}

TEST(Usage, ErrorsExitWithTwo) {
  expect_failure(zeepo_with({}), 2, {"subcommand"});
  expect_failure(zeepo_with({"frobnicate"}), 2, {});
  expect_failure(zeepo_with({"train"}), 2, {"--model"});
  expect_failure(zeepo_with(train({"--frobnicate"})), 2, {"--frobnicate"});
  expect_failure(zeepo_with(train({"--lr", "fast"})), 2, {"--lr", "fast"});
  expect_failure(zeepo_with(train({"--optimizer", "lion"})), 2, {"--optimizer", "lion"});
  expect_failure(zeepo_with(train({"--micro-batch", "0"})), 2, {"--micro-batch 0", "at least 1"});
  expect_failure(zeepo_with(train({"--grad-accum", "0"})), 2, {"--grad-accum 0", "at least 1"});
  for (const std::string betas : {"0.9", "0.9,0.95,0.99", ",0.95", "0.9,"})
    expect_failure(zeepo_with(train({"--betas", betas})), 2, {"--betas " + betas, "two numbers"});
  expect_failure(zeepo_with(train({"--dtype", "fp8"})), 2, {"--dtype", "fp8"});
  expect_failure(zeepo_with(train({"--device", "tpu"})), 2, {"--device tpu"});
  expect_failure(zeepo_with(train({"--lr", "-1"})), 2, {"--lr -1"});
  expect_failure(zeepo_with(train({"--checkpoint-every", "1"})), 2, {"--checkpoint-every 1", "--checkpoint-dir"});
  expect_failure(zeepo_with(train({"--comm", "smoke"})), 2, {"--comm smoke", "nccl"});
  expect_failure(zeepo_with(train({"--device", "cpu", "--comm", "nccl"})), 2, {"--comm nccl", "--device cuda"});
  expect_failure(zeepo_with(generate({})), 2, {"--prompt", "--ids"});
  expect_failure(zeepo_with(generate({"--ids", "1,x"})), 2, {"--ids 1,x"});
  expect_failure(zeepo_with(generate({"--ids", "1", "--top-p", "0"})), 2, {"--top-p 0"});
  for (const std::string seed : {"-1", "18446744073709551616", "1.5"})
    expect_failure(zeepo_with(generate({"--ids", "1", "--seed", seed})), 2, {"--seed " + seed, "whole number"});
  for (const std::string temperature : {"-1", "nan", "inf"})
    expect_failure(zeepo_with(generate({"--ids", "1", "--temperature", temperature})), 2,
                   {"--temperature " + temperature});
  expect_failure(zeepo_with(generate({"--ids", "1", "--memory", "disk=1GiB"})), 2, {"--memory disk=1GiB"});
}

TEST(Usage, SizesBeyondAllMeasureAreNamed) {
  for (const std::string huge : {"1048577", "4611686018427387904", "9223372036854775807"})
    for (const std::string option : {"--micro-batch", "--grad-accum"})
      expect_failure(zeepo_with(train({option, huge})), 2, {fmt::format("{} {}", option, huge), "at most"});
  expect_failure(zeepo_with(train({"--seq-len", "9223372036854775807"})), 2, {"--seq-len", "128 positions"});
  expect_failure(zeepo_with(train({"--threads", "1000000"})), 2, {"--threads"});
  expect_failure(zeepo_with(generate({"--ids", "1,2", "--max-new-tokens", "9223372036854775807"})), 1,
                 {"9223372036854775807", "128 positions"});
}

TEST(Usage, OddValuesAreNamed) {
  expect_failure(zeepo_with(train({"--seq-len", "16777216", "--micro-batch", "1048576", "--grad-accum", "1048576"})), 2,
                 {"--seq-len 16777216", "--grad-accum 1048576", "at most"});
  expect_failure(zeepo_with(train({"--steps", "9223372036854775808"})), 2,
                 {"--steps 9223372036854775808", "from 1 to"});
  for (const std::string option : {"--steps", "--seq-len"})  // what nobody gives is chosen by the data and the model
    expect_failure(zeepo_with(train({option, "0"})), 2, {option + " 0", "at least 1"});
  expect_failure(zeepo_with(train({"--seed", "-1"})), 2, {"--seed -1"});
  expect_failure(zeepo_with(train({"--seed", "18446744073709551616"})), 2, {"--seed 18446744073709551616"});
  for (const std::string option : {"--output", "--log", "--trace", "--nvme-path", "--lr", "--model", "--data"})
    expect_failure(zeepo_with(train({option, ""})), 2, {option + " \"\""});
  expect_failure(zeepo_with(train({"--delayed-update"})), 2, {"--delayed-update"});
  expect_failure(zeepo_with(train({"--lr", "1", "--lr", "2"})), 2, {"--lr: is given 2 times"});
  for (const std::string ids : {"1,2,", ",1", "1,,2", "1, 2"})
    expect_failure(zeepo_with(generate({"--ids", ids})), 2, {"--ids " + ids});
}

TEST(Usage, OddNumbersOfGenerateAndServeAreNamed) {
  for (const auto& [option, text] : std::vector<std::pair<std::string, std::string>>{{"--seed", "-1"},
                                                                                     {"--seed", "18446744073709551616"},
                                                                                     {"--max-new-tokens", "0x10"},
                                                                                     {"--max-new-tokens", "-1"},
                                                                                     {"--max-batch", "0"},
                                                                                     {"--top-k", "-1"},
                                                                                     {"--temperature", "inf"},
                                                                                     {"--temperature", "nan"},
                                                                                     {"--timeout", "nan"},
                                                                                     {"--threads", "1025"},
                                                                                     {"--blocks-per-unit", "0"}})
    expect_failure(zeepo_with(generate({"--ids", "1", option, text})), 2, {"generate: " + option + " " + text});
  const std::string model = golden("gpt2-tiny");
  expect_failure(zeepo_with({"serve", "--model", model, "--port", "65536"}), 2, {"serve: --port 65536", "65535"});
  expect_failure(zeepo_with({"serve", "--model", model, "--kv-tokens", "0"}), 2, {"serve: --kv-tokens 0"});
  // As everywhere: not in octal.
  const auto ten = zeepo_with(generate({"--ids", "1", "--max-new-tokens", "010", "--ignore-eos", "--json"}));
  ASSERT_EQ(ten.code, 0) << ten.err;
  EXPECT_EQ(json_lines(ten.out).at(0).at("ids").size(), 10u);
}

TEST(Usage, EmptyTextsAreNamed) {
  const std::string model = golden("gpt2-tiny");
  for (const std::string option :
       {"--logits", "--trace", "--memory", "--cache-dir", "--dtype", "--nvme-path", "--model"})
    expect_failure(zeepo_with(generate({"--ids", "1", option, ""})), 2, {option, "empty"});
  // Without keys anybody could ask.
  expect_failure(zeepo_with({"serve", "--model", model, "--api-key-file", ""}), 2, {"--api-key-file", "empty"});
  expect_failure(zeepo_with({"export", model, "--output", ""}), 2, {"--output", "empty"});
  expect_failure(zeepo_with({"report", "log", "--html", ""}), 2, {"--html", "empty"});
  expect_failure(zeepo_with({"inspect", ""}), 2, {"PATH", "empty"});
}

TEST(Generate, FilesThatCannotBeWrittenLoseNoTokens) {
  const TestDirectory directory;
  const std::string file = directory.path() / "file";
  const Limits small{.file_bytes = 8000};  // of stdout as well
  std::string ids = "1";
  for (int i = 2; i < 60; ++i) ids += fmt::format(",{}", i);
  const Arguments asked{"--ids", ids, "--max-new-tokens", "40", "--ignore-eos", "--json"};
  const auto whole = json_lines(zeepo_with(generate(asked)).out);
  for (const std::string option : {"--logits", "--trace"}) {
    Arguments arguments = asked;
    arguments.insert(arguments.end(), {option, file});
    const auto finished = zeepo_with(generate(arguments), small);
    expect_failure(finished, 1, {file, "File too large"});
    const auto lines = json_lines(finished.out);
    ASSERT_EQ(lines.size(), 2u) << option;
    EXPECT_EQ(lines[0].at("ids"), whole.at(0).at("ids"));
    EXPECT_EQ(lines[1].at("event"), "summary");
    EXPECT_TRUE(listing(directory.path()).empty());
  }
}

TEST(Train, AFileOfTheRunIsNoOtherOne) {
  const TestDirectory directory;
  const fs::path data = directory.path() / "tokens.bin";
  fs::copy_file(golden("gpt2-tiny") / "tokens.bin", data);
  fs::create_symlink(data, directory.path() / "link");
  const std::string before = whole_file(data), log = directory.path() / "log";
  for (const std::string option : {"--log", "--csv", "--prometheus", "--trace"})
    for (const std::string name : {"tokens.bin", "link", "./tokens.bin"}) {
      const std::string path = directory.path() / name;
      expect_failure(zeepo_with(train({"--data", data, option, path})), 1, {option + " " + path, "--data"});
      EXPECT_TRUE(whole_file(data) == before) << option;
    }
  for (const std::string option : {"--csv", "--trace"})
    expect_failure(zeepo_with(train({"--log", log, option, log})), 2, {option + " " + log, "--log"});
}

TEST(Train, OffloadedActivationsAreSaidToBeCheckpoints) {
  const auto finished =
      zeepo_with(train({"--offload-activations", "host", "--memory", "device=64MiB,host=64MiB", "--log", "-"}));
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(names(finished.err, "--offload-activations host turns on --activation-checkpointing"));
  EXPECT_EQ(json_lines(finished.out).at(0).at("placement").at("activation_checkpointing"), true);
}

TEST(Train, TheLocalOrderOfSumsIsNearTheGlobalOne) {
  const auto run = [](const Arguments& given) {
    Arguments arguments{"--log", "-", "--grad-accum", "3", "--dtype", "bf16", "--device", "cpu"};
    arguments.insert(arguments.end(), given.begin(), given.end());
    const auto finished = zeepo_with(train(arguments));
    EXPECT_EQ(finished.code, 0) << finished.err;
    return json_lines(finished.out).back();
  };
  const Json standard = run({}), global = run({"--sum-order", "global"}), local = run({"--sum-order", "local"});
  EXPECT_EQ(standard.at("weights_hash"), global.at("weights_hash"));
  EXPECT_NE(local.at("weights_hash"), global.at("weights_hash"));
  EXPECT_NEAR(local.at("loss").get<double>(), global.at("loss").get<double>(), 1e-2);
}

TEST(Train, LogToStdoutIsJsonLinesAndNothingElse) {
  const auto finished = zeepo_with(train({"--log", "-"}));
  ASSERT_EQ(finished.code, 0) << finished.err;
  const auto lines = json_lines(finished.out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].at("event"), "plan");
  for (const std::size_t i : {1, 2}) {
    EXPECT_EQ(lines[i].at("event"), "step");
    EXPECT_EQ(lines[i].at("step"), i);
    for (const char* key :
         {"loss", "grad_norm", "lr", "tokens", "seconds", "tokens_per_second", "tflops", "stall_seconds"})
      EXPECT_TRUE(lines[i].contains(key)) << key;
  }
  for (const char* key : {"loss", "params", "world_size", "weights_hash", "ranks"})
    EXPECT_TRUE(lines[3].contains(key)) << key;
  EXPECT_EQ(lines[3].at("event"), "summary");
}

TEST(Train, ANewRunStartsTheLogAnew) {
  const TestDirectory directory;
  const fs::path log = directory.path() / "log.jsonl";
  for (int i = 0; i < 2; ++i) {
    const auto finished = zeepo_with(train({"--log", log.string()}));
    ASSERT_EQ(finished.code, 0) << finished.err;
    EXPECT_TRUE(finished.out.empty()) << finished.out;
    EXPECT_EQ(json_lines(whole_file(log)).size(), 4u);
  }
}

TEST(Train, TheSameCommandGivesTheSameBits) {
  const auto run = [](const char* threads) {
    const auto lines = json_lines(zeepo_with(train({"--log", "-", "--seed", "3", "--threads", threads})).out);
    return std::pair(lines.at(2).at("loss"), lines.at(3).at("weights_hash"));
  };
  EXPECT_EQ(run("1"), run("1"));
  EXPECT_EQ(run("1"), run("3"));
}

TEST(Train, TheOutputIsAModelThatTrainsOnAndGenerates) {
  const TestDirectory directory;
  for (const std::string dtype : {"fp32", "bf16"}) {
    const fs::path output = directory.path() / ("trained-" + dtype);
    const auto first = zeepo_with(train({"--output", output.string(), "--output-dtype", dtype, "--log", "-"}));
    ASSERT_EQ(first.code, 0) << first.err;
    for (const char* name : {"config.json", "model.safetensors", "generation_config.json"})
      EXPECT_TRUE(fs::exists(output / name)) << name;
    const auto second = zeepo_with(train({"--log", "-", "--lr", "0", "--weight-decay", "0"}, output));
    ASSERT_EQ(second.code, 0) << second.err;
    if (dtype == "fp32") {
      EXPECT_EQ(json_lines(second.out).back().at("weights_hash"), json_lines(first.out).back().at("weights_hash"));
    }
    const auto text = zeepo_with({"generate", "--model", output.string(), "--ids", "1,2", "--max-new-tokens", "4",
                                  "--ignore-eos", "--json", "--memory", "device=64MiB"});
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_EQ(json_lines(text.out).at(0).at("ids").size(), 4u);
  }
  EXPECT_EQ(listing(directory.path()).size(), 2u);
}

TEST(Generate, JsonHoldsTheResultAndASummary) {
  const Json expected = Json::parse(whole_file(golden("llama-tiny") / "golden.json"));
  std::string ids;
  for (const auto& id : expected.at("prompt")) {
    if (!ids.empty()) ids += ',';
    ids += std::to_string(id.get<int>());
  }
  const TestDirectory directory;
  const fs::path logits = directory.path() / "logits.safetensors";
  const auto finished =
      zeepo_with({"generate", "--model", golden("llama-tiny").string(), "--ids", ids, "--max-new-tokens", "24",
                  "--ignore-eos", "--json", "--logits", logits.string(), "--memory", "device=64MiB"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  const auto lines = json_lines(finished.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].at("ids"), expected.at("greedy"));
  EXPECT_TRUE(lines[0].at("text").is_null());
  EXPECT_EQ(lines[0].at("prompt_tokens"), expected.at("prompt").size());
  for (const char* key : {"seconds_prefill", "seconds_per_token", "tokens_per_second"})
    EXPECT_TRUE(lines[0].at(key).is_number()) << key;
  EXPECT_EQ(lines[1].at("event"), "summary");
  EXPECT_TRUE(lines[1].at("ranks").at(0).contains("peak_bytes"));
  EXPECT_TRUE(names(whole_file(logits).substr(0, 200), "\"shape\":[7,256]"));
}

TEST(Generate, IdsNeedNoTokenizerThatZeepoKnows) {
  const TestDirectory directory;
  const fs::path model = copy_of(directory);
  directory.write("gpt2-tiny/tokenizer.json", R"({"model": {"type": "BPE", "byte_fallback": true}})");
  const auto ids = zeepo_with(generate({"--ids", "1,2", "--max-new-tokens", "2", "--ignore-eos", "--json"}, model));
  ASSERT_EQ(ids.code, 0) << ids.err;
  EXPECT_TRUE(names(ids.err, "warning", "tokenizer.json.model: byte_fallback"));
  EXPECT_EQ(json_lines(ids.out).at(0).at("ids").size(), 2u);
  EXPECT_TRUE(json_lines(ids.out).at(0).at("text").is_null());
  expect_failure(zeepo_with(generate({"--prompt", "a"}, model)), 1, {"byte_fallback"});
}

TEST(Generate, FaultsExitWithOne) {
  expect_failure(zeepo_with(generate({"--ids", "1"}, "/nowhere")), 1, {"/nowhere"});
  expect_failure(zeepo_with(generate({"--ids", "1,256"}, golden("gpt2-tiny"))), 1, {"token 1", "256"});
  expect_failure(zeepo_with(generate({"--prompt", "hello"}, golden("gpt2-tiny"))), 1, {"tokenizer.json", "--ids"});
  expect_failure(zeepo_with(generate({"--ids", "1", "--max-new-tokens", "1000"})), 1, {"128 positions"});
  expect_failure(zeepo_with(generate({"--ids", "1", "--memory", "device=64KiB"}, golden("gpt2-tiny"))), 1,
                 {"memory", "64.00 KiB"});
  const Finished unwritable = zeepo_with(generate({"--ids", "1", "--logits", "/nowhere/logits"}));
  expect_failure(unwritable, 1, {"/nowhere/logits"});
  EXPECT_EQ(unwritable.out, "") << "generates first";
}

TEST(Tokenize, TextComesBackAsItWas) {
  const TestDirectory directory;
  const std::string text = "Hello, wörld!\n\tIt's 1234 — naïve 你好 🙂  end\n";
  const fs::path input = directory.write("in.txt", text), tokens = directory.path() / "in.bin",
                 back = directory.path() / "back.txt";
  for (const std::string tokenizer : {"gpt2-bpe", "llama3-bpe"}) {
    const std::string model = golden("tokenizers/" + tokenizer).string();
    const auto encoded =
        zeepo_with({"tokenize", "--model", model, "--input", input.string(), "--output", tokens.string(), "--json"});
    ASSERT_EQ(encoded.code, 0) << encoded.err;
    const auto lines = json_lines(encoded.out);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0].at("documents"), 1);
    EXPECT_EQ(lines[0].at("tokens").get<std::uintmax_t>() * 2, fs::file_size(tokens));
    const auto decoded =
        zeepo_with({"tokenize", "--model", model, "--decode", "--input", tokens.string(), "--output", back.string()});
    ASSERT_EQ(decoded.code, 0) << decoded.err;
    EXPECT_EQ(whole_file(back), text) << tokenizer;
  }
}

TEST(Tokenize, AnEmptyTextComesBackToo) {
  const TestDirectory directory;
  const std::string model = golden("tokenizers/gpt2-bpe").string();
  const fs::path input = directory.write("in.txt", ""), tokens = directory.path() / "in.bin",
                 back = directory.path() / "back.txt";
  const auto encoded =
      zeepo_with({"tokenize", "--model", model, "--input", input.string(), "--output", tokens.string(), "--json"});
  EXPECT_EQ(encoded.out, "{\"tokens\":0,\"documents\":1}\n") << encoded.err;
  const auto decoded = zeepo_with(
      {"tokenize", "--model", model, "--decode", "--input", tokens.string(), "--output", back.string(), "--json"});
  EXPECT_EQ(decoded.code, 0) << decoded.err;
  EXPECT_EQ(json_lines(decoded.out).at(0).at("tokens"), 0);
  EXPECT_TRUE(fs::exists(back));
  EXPECT_EQ(whole_file(back), "");
}

TEST(Tokenize, TheInputIsNeverTheOutput) {
  const TestDirectory directory;
  const fs::path input = directory.write("in.txt", "kept");
  fs::create_symlink(input, directory.path() / "link.txt");
  for (const fs::path& same : {input, directory.path() / "." / "in.txt", directory.path() / "link.txt"})
    expect_failure(zeepo_with({"tokenize", "--model", golden("tokenizers/gpt2-bpe").string(), "--input", input.string(),
                               "--output", same.string()}),
                   2, {same.string(), "is the input"});
  EXPECT_EQ(whole_file(input), "kept");
}

// A directory with a tokenizer and a configuration that fits it, but no weights.
fs::path text_model(const TestDirectory& directory) {
  const fs::path model = directory.path() / "text";
  fs::create_directory(model);
  fs::copy_file(golden("tokenizers/gpt2-bpe/tokenizer.json"), model / "tokenizer.json");
  Json config = Json::parse(whole_file(golden("gpt2-tiny") / "config.json"));
  config["vocab_size"] = 700;
  directory.write("text/config.json", config.dump());
  return model;
}

TEST(Train, TextBecomesAModelThatContinuesText) {
  const TestDirectory directory;
  const fs::path model = text_model(directory), output = directory.path() / "trained";
  std::string text, lines;
  for (int i = 0; i < 40; ++i) {
    text += "The quick brown fox jumps over the lazy dog. ";
    lines += "{\"text\": \"one short document\"}\n";
  }
  for (const fs::path& data : {directory.write("data.txt", text), directory.write("data.jsonl", lines)}) {
    const auto trained =
        zeepo_with(train({"--from-scratch", "--data", data.string(), "--output", output.string()}, model));
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_EQ(whole_file(output / "tokenizer.json"), whole_file(model / "tokenizer.json"));
  }
  // At this temperature the bytes are noise; what is printed is UTF-8 all the same.
  const auto noise = zeepo_with(generate(
      {"--prompt", "The quick", "--max-new-tokens", "100", "--temperature", "50", "--ignore-eos", "--json"}, output));
  ASSERT_EQ(noise.code, 0) << noise.err;
  EXPECT_FALSE(json_lines(noise.out).at(0).at("text").get<std::string>().empty());
  const auto plain = zeepo_with(generate({"--prompt", "The quick", "--max-new-tokens", "5"}, output));
  EXPECT_EQ(plain.code, 0);
  EXPECT_FALSE(plain.out.empty());
  expect_failure(zeepo_with(generate({"--prompt", ""}, output)), 1, {"empty"});
}

TEST(Hostile, TextThatTheVocabularyCannotHold) {
  const TestDirectory directory;
  const fs::path model = text_model(directory);
  Json config = Json::parse(whole_file(model / "config.json"));
  config["vocab_size"] = 300;  // the tokenizer has more
  directory.write("text/config.json", config.dump());
  const fs::path data =
      directory.write("data.txt", "The quick brown fox jumps over the lazy dog, and the function returns the value.");
  expect_failure(zeepo_with(train({"--from-scratch", "--data", data.string()}, model)), 1, {"300"});
}

TEST(Hostile, ModelsThatAreNotThere) {
  const TestDirectory directory;
  expect_failure(zeepo_with(train({}, directory.path() / "nowhere")), 1, {"nowhere", "no such directory"});
  expect_failure(zeepo_with(train({}, golden("gpt2-tiny") / "config.json")), 1, {"config.json: is a file"});
  expect_failure(zeepo_with(train({"--data", directory.write("book.txt", "text").string()})), 1,
                 {"book.txt", "text needs a tokenizer", "gpt2-tiny"});
  const fs::path bare = copy_of(directory);
  fs::remove(bare / "model.safetensors");
  expect_failure(zeepo_with(train({}, bare)), 1, {"safetensors"});
  expect_failure(zeepo_with({"generate", "--model", bare.string(), "--ids", "1", "--memory", "device=64MiB"}), 1,
                 {"safetensors"});
  EXPECT_EQ(zeepo_with(train({"--from-scratch"}, bare)).code, 0);
  directory.write("gpt2-tiny/config.json", "{\"model_type\": \"gpt2\", ");
  expect_failure(zeepo_with(train({}, bare)), 1, {"config.json"});
  directory.write("gpt2-tiny/config.json", "{\"model_type\": \"bert\"}");
  expect_failure(zeepo_with(train({}, bare)), 1, {"bert"});
}

TEST(Hostile, WeightsThatAreCutOffOrOfAnotherModel) {
  const TestDirectory directory;
  const fs::path model = copy_of(directory);
  const std::string whole = whole_file(model / "model.safetensors");
  for (const std::size_t kept :
       {std::size_t{0}, std::size_t{7}, std::size_t{100}, whole.size() / 2, whole.size() - 1}) {
    directory.write("gpt2-tiny/model.safetensors", std::string_view(whole).substr(0, kept));
    expect_failure(zeepo_with(train({}, model)), 1, {"model.safetensors"});
  }
  fs::copy_file(golden("llama-tiny") / "model.safetensors", model / "model.safetensors",
                fs::copy_options::overwrite_existing);
  expect_failure(zeepo_with(train({}, model)), 1, {"missing", "transformer."});
}

TEST(Hostile, DataThatIsEmptyShortOrOutOfRange) {
  const TestDirectory directory;
  const auto with_data = [&](const std::string& name, std::string_view bytes) {
    return zeepo_with(train({"--data", directory.write(name, bytes).string()}));
  };
  expect_failure(with_data("empty.bin", ""), 1, {"empty.bin"});
  expect_failure(with_data("odd.bin", std::string(101, '\1')), 1, {"odd.bin"});
  expect_failure(with_data("short.bin", std::string(8, '\0')), 1, {});
  std::string beyond(200, '\0');
  beyond[3] = '\1';  // token 1 is 256
  expect_failure(with_data("beyond.bin", beyond), 1, {"beyond.bin", "256"});
  expect_failure(with_data("data.csv", "1,2,3"), 1, {"data.csv"});
  expect_failure(zeepo_with(train({"--data", (directory.path() / "missing.bin").string()})), 1, {"missing.bin"});
}

TEST(Hostile, AnOutputThatCannotBeIsSaidBeforeTraining) {
  const TestDirectory directory;
  directory.write("file", "kept");
  for (const fs::path& output :
       {directory.path() / "file", directory.path() / "file" / "inside", fs::path("/proc/zeepo")}) {
    const auto finished = zeepo_with(train({"--output", output.string()}));
    expect_failure(finished, 1, {"--output", output.string()});
    EXPECT_EQ(finished.err.find("step 1/2"), std::string::npos) << finished.err;
  }
  EXPECT_EQ(whole_file(directory.path() / "file"), "kept");
  EXPECT_EQ(listing(directory.path()), (std::vector<std::string>{"file"}));
  expect_failure(zeepo_with(train({"--log", (directory.path() / "no" / "log").string()})), 1, {"--log"});
}

TEST(Hostile, AFullDiskLeavesNothingHalfWritten) {
  const TestDirectory directory;
  const fs::path output = directory.path() / "trained";
  const Limits small{.file_bytes = 64 * 1024};  // the weights take 150 KiB
  const auto finished = zeepo_with(train({"--output", output.string(), "--output-retry", "0"}), small);
  expect_failure(finished, 1, {output.string()});
  EXPECT_TRUE(names(error_line(finished), "cannot save the model"));
  EXPECT_TRUE(listing(directory.path()).empty());
  // Over an older model: it stays as it was.
  ASSERT_EQ(zeepo_with(train({"--output", output.string(), "--steps", "1"})).code, 0);
  const std::string before = whole_file(output / "model.safetensors");
  expect_failure(zeepo_with(train({"--output", output.string(), "--output-retry", "0.1"}), small), 1,
                 {output.string(), "the next try"});
  EXPECT_EQ(whole_file(output / "model.safetensors"), before);
  EXPECT_EQ(listing(directory.path()), (std::vector<std::string>{"trained"}));

  const fs::path input = directory.write("in.txt", std::string(300'000, 'x')), tokens = directory.path() / "in.bin";
  const auto tokenized = zeepo_with({"tokenize", "--model", golden("tokenizers/gpt2-bpe").string(), "--input",
                                     input.string(), "--output", tokens.string()},
                                    {.file_bytes = 1024});
  expect_failure(tokenized, 1, {"in.bin"});
  EXPECT_EQ(listing(directory.path()), (std::vector<std::string>{"in.txt", "trained"}));
  const fs::path logits = directory.path() / "logits.safetensors";
  const auto generated = zeepo_with({"generate", "--model", golden("gpt2-tiny").string(), "--ids", "1,2,3", "--logits",
                                     logits.string(), "--memory", "device=64MiB"},
                                    {.file_bytes = 1024});
  expect_failure(generated, 1, {"logits.safetensors"});
  EXPECT_FALSE(fs::exists(logits));
}

TEST(Hostile, AFullDiskUnderTheLogIsOneError) {
  const TestDirectory directory;
  // stderr is a file on that disk too.
  const auto finished = zeepo_with(train({"--log", (directory.path() / "log").string()}), {.file_bytes = 300});
  expect_failure(finished, 1, {"--log"});
}

// The model is worth more than what is told of it.
TEST(Hostile, AFullDiskUnderTheLogDoesNotLoseTheModel) {
  const TestDirectory directory;
  const fs::path output = directory.path() / "trained";
  const auto finished = zeepo_with(train({"--log", "/dev/full", "--output", output.string()}));
  expect_failure(finished, 1, {"--log /dev/full", "saved to"});
  EXPECT_EQ(zeepo_with(train({}, output)).code, 0);
}

TEST(Hostile, OddFilesAreErrorsAtOnce) {
  const TestDirectory directory;
  const std::string fifo = directory.path() / "fifo.bin", text = directory.path() / "fifo.txt";
  for (const std::string& name : {fifo, text}) ASSERT_EQ(::mkfifo(name.c_str(), 0600), 0);
  expect_failure(zeepo_with(train({"--data", fifo})), 1, {fifo, "FIFO"});
  expect_failure(zeepo_with(train({"--config", fifo})), 2, {fifo, "FIFO"});
  expect_failure(zeepo_with(train({"--log", fifo})), 1, {fifo, "FIFO", "nobody reads"});
  expect_failure(zeepo_with(train({"--trace", fifo})), 1, {fifo, "FIFO"});
  expect_failure(zeepo_with({"tokenize", "--model", golden("tokenizers/gpt2-bpe").string(), "--input", text, "--output",
                             (directory.path() / "out.bin").string()}),
                 1, {text, "FIFO"});
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    const fs::path model = copy_of(directory, "gpt2-tiny");
    fs::remove(model / name);
    ASSERT_EQ(::mkfifo((model / name).c_str(), 0600), 0);
    // A tokenizer that training does not need is found before the first step, since the model takes it along.
    const auto finished = zeepo_with(train({"--output", (directory.path() / "trained").string()}, model));
    expect_failure(finished, 1, {name, "FIFO"});
    EXPECT_EQ(finished.err.find("step 1/2"), std::string::npos);
    fs::remove_all(model);
  }
}

TEST(Hostile, AStdoutThatTakesNothingIsAnError) {
  const Limits full{.stdout_path = "/dev/full"};
  expect_failure(zeepo_with(train({"--log", "-"}), full), 1, {"--log -"});
  expect_failure(zeepo_with(generate({"--ids", "1", "--max-new-tokens", "2", "--json"}), full), 1, {"standard output"});
  expect_failure(zeepo_with(generate({"--ids", "1", "--max-new-tokens", "2"}), full), 1, {});
  expect_failure(zeepo_with({"train", "--help"}, full), 1, {"standard output"});
}

TEST(Train, TheModelItselfCanBeTheOutput) {
  const TestDirectory directory;
  const fs::path model = copy_of(directory, "mistral-tiny");  // several files become one
  const auto run = zeepo_with(train({"--output", model.string(), "--log", "-"}, model));
  ASSERT_EQ(run.code, 0) << run.err;
  const auto again = zeepo_with(train({"--lr", "0", "--weight-decay", "0", "--log", "-"}, model));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(json_lines(again.out).back().at("weights_hash"), json_lines(run.out).back().at("weights_hash"));
  EXPECT_FALSE(fs::exists(model / "model-00001-of-00003.safetensors"));
}

TEST(Train, MoreMemoryThanTheBudgetIsSaidBeforeTraining) {
  const auto finished = zeepo_with(train({"--memory", "device=256KiB"}));
  expect_failure(finished, 1, {"256.00 KiB", "params", "--micro-batch"});
  EXPECT_EQ(finished.err.find("step 1/2"), std::string::npos);
}

}  // namespace
}  // namespace zeepo
