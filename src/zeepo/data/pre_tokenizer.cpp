#include "zeepo/data/pre_tokenizer.h"

#include <map>
#include <optional>

#include "zeepo/base/error.h"
#include "zeepo/data/json_value.h"
#include "zeepo/data/regex_syntax.h"

namespace zeepo {
namespace {

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::size_t kMostSteps = 32;

std::string expression_of(const JsonValue& pattern) {
  if (const auto regex = pattern.find("Regex")) return to_pcre2_syntax(regex->string());
  if (const auto literal = pattern.find("String")) return escape_for_pcre2(literal->string());
  throw Error("{}: must have \"Regex\" or \"String\"", pattern.where());
}

}  // namespace

PreTokenizer PreTokenizer::parse(const JsonValue& json) {
  PreTokenizer result;
  if (json.type() == "Sequence") {
    for (const JsonValue& item : json.at("pretokenizers").items()) result.add(item);
  } else {
    result.add(json);
  }
  if (!result.byte_level_) throw Error("{}: has no ByteLevel; only byte-level tokenizers are supported", json.where());
  return result;
}

void PreTokenizer::add(const JsonValue& json) {
  static const std::map<std::string, Behavior, std::less<>> kBehaviors = {
      {"Isolated", Behavior::isolated},
      {"Removed", Behavior::removed},
      {"Contiguous", Behavior::contiguous},
      {"MergedWithPrevious", Behavior::merged_with_previous},
      {"MergedWithNext", Behavior::merged_with_next},
  };
  const std::string type = json.type();
  if (byte_level_) throw Error("{}: \"{}\" after ByteLevel is not supported", json.where(), type);
  if (type == "ByteLevel") {
    add_byte_level(json);
  } else if (type == "Split") {
    const JsonValue behavior = json.at("behavior");
    const auto known = kBehaviors.find(behavior.string());
    if (known == kBehaviors.end()) throw Error("{}: \"{}\" is not known", behavior.where(), behavior.string());
    const auto invert = json.find("invert");
    steps_.push_back(Split{Regex(expression_of(json.at("pattern"))), known->second, invert && invert->boolean()});
  } else if (type == "Digits") {
    const auto individual = json.find("individual_digits");
    const bool isolated = individual && individual->boolean();
    steps_.push_back(Split{Regex(R"(\p{N})"), isolated ? Behavior::isolated : Behavior::contiguous, false});
  } else {
    throw Error("{}: pre-tokenizer \"{}\" is not supported; ByteLevel, Split, Digits and a Sequence of them are",
                json.where(), type);
  }
  if (steps_.size() > kMostSteps) throw Error("{}: more than {} steps", json.where(), kMostSteps);
}

void PreTokenizer::add_byte_level(const JsonValue& json) {
  const auto use_regex = json.find("use_regex");
  if (json.at("add_prefix_space").boolean()) steps_.push_back(PrefixSpace{});
  if (!use_regex || use_regex->boolean()) steps_.push_back(Split{Regex(kGpt2), Behavior::isolated, false});
  byte_level_ = true;
}

void PreTokenizer::run_from(std::size_t step, std::string_view text, RegexScratch& scratch, const Sink& sink) const {
  if (text.empty()) return;
  if (step == steps_.size()) return sink(text);
  if (const auto* split_step = std::get_if<Split>(&steps_[step])) {
    if (step + 1 == steps_.size()) return split(*split_step, text, scratch, sink);
    split(*split_step, text, scratch, [&](std::string_view piece) { run_from(step + 1, piece, scratch, sink); });
  } else if (text.starts_with(' ')) {
    run_from(step + 1, text, scratch, sink);
  } else {
    std::string prefixed;
    prefixed.reserve(text.size() + 1);
    prefixed.append(" ").append(text);
    run_from(step + 1, prefixed, scratch, sink);
  }
}

// Matches and the stretches between them arrive in order; what is held is the range that may still grow. Its rules are
// those of the tokenizers library, down to empty ranges, which count as neighbours but are never pieces.
void PreTokenizer::split(const Split& split, std::string_view text, RegexScratch& scratch, const Sink& sink) {
  std::optional<TextRange> held;
  bool held_match = false;
  const auto flush = [&] {
    if (held && held->begin != held->end) sink(text.substr(held->begin, held->end - held->begin));
    held.reset();
  };
  const auto take = [&](TextRange range, bool match) {
    match = match != split.invert;
    bool joins = false;
    switch (split.behavior) {
      case Behavior::isolated: break;
      case Behavior::removed:
        if (match) return;
        break;
      case Behavior::contiguous: joins = match == held_match; break;
      case Behavior::merged_with_previous: joins = match && !held_match; break;
      case Behavior::merged_with_next: joins = held_match && !match; break;
    }
    if (held && joins) {
      held->end = range.end;
    } else {
      flush();
      held = range;
    }
    held_match = match;
  };
  std::size_t done = 0;
  RegexMatches matches(split.regex, scratch, text);
  while (const auto match = matches.next()) {
    if (match->begin != done) take({done, match->begin}, false);
    take(*match, true);
    done = match->end;
  }
  if (done != text.size()) take({done, text.size()}, false);
  flush();
}

}  // namespace zeepo
