#include "zeepo/plan/plan_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"

namespace zeepo {
namespace {

constexpr std::size_t kColumns = 80;

template <std::size_t N>
std::string three_digits(std::int64_t number, double base, const std::array<const char*, N>& units) {
  double value = static_cast<double>(number);
  std::size_t unit = 0;
  while (std::abs(value) >= base && unit + 1 < N) value /= base, ++unit;
  if (unit == 0) return fmt::format("{}{}", number, units[0]);
  const int digits = std::abs(value) >= 100 ? 0 : std::abs(value) >= 10 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, digits, units[unit]);
}

// "12.5k tok/s, host link".
std::string time_text(const StepTime& time) {
  return fmt::format("{} tok/s, {}", short_rate(time.tokens_per_second), name_of(time.bound()));
}

std::string verdict(const ExactPlan& plan) {
  if (!plan.fits()) return missing_text(plan.missing);
  return plan.time ? time_text(*plan.time) : "fits";
}

// As many phrases a line as 80 columns take; `end` closes all lines but the last.
std::string in_lines(const std::vector<std::string>& phrases, const std::string& first, const std::string& indent,
                     const std::string& end) {
  std::string lines, line;
  for (const std::string& phrase : phrases) {
    const bool full = !line.empty() && line.size() + 1 + phrase.size() + end.size() > kColumns;
    if (full) lines += line + end + "\n";
    line = full ? indent + phrase : line.empty() ? first + phrase : line + " " + phrase;
  }
  return lines + line + "\n";
}

// Objects on one line where they fit, else a member a line.
std::string laid_out(const nlohmann::ordered_json& json, const std::string& indent, std::size_t before) {
  const std::string line = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (!json.is_object() || before + line.size() < kColumns) return line;
  std::string text = "{";
  for (const auto& [key, value] : json.items()) {
    const std::string name = fmt::format("{}  {}: ", indent, nlohmann::ordered_json(key).dump());
    text += (text == "{" ? "\n" : ",\n") + name + laid_out(value, indent + "  ", name.size());
  }
  return text + "\n" + indent + "}";
}

}  // namespace

std::string short_size(std::int64_t bytes) {
  return three_digits(bytes, 1024, std::array<const char*, 7>{" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"});
}

std::string size_or_dash(std::int64_t bytes) { return bytes == 0 ? "-" : short_size(bytes); }

std::string missing_text(const PlaceBytes& missing) {
  for (const Place place : kPlaces)
    if (const std::int64_t bytes = missing[static_cast<std::size_t>(place)]; bytes > 0)
      return fmt::format("{}: {} short", name_of(place), short_size(bytes));
  return "";
}

std::string tiers_text(const PlaceBytes& bytes, const PlaceBytes& budgets) {
  std::vector<std::string> parts;
  for (const Place place : kPlaces) {
    const auto i = static_cast<std::size_t>(place);
    if (bytes[i] > 0)
      parts.push_back(fmt::format("{} {} of {}", name_of(place), short_size(bytes[i]), short_size(budgets[i])));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string short_rate(double rate) {
  if (rate < 9.995) return fmt::format("{:.2f}", rate);
  if (rate < 9999.5) return fmt::format("{:.0f}", rate);
  constexpr std::array kUnits{"k", "M", "G", "T"};
  std::size_t unit = 0;
  for (rate /= 1e3; rate >= 999.5 && unit + 1 < kUnits.size(); ++unit) rate /= 1e3;
  return fmt::format("{:.3g}{}", rate, kUnits[unit]);
}

std::string short_seconds(double seconds) {
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  return seconds < 99.95 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string short_decimal_size(std::int64_t bytes) {
  return three_digits(bytes, 1000, std::array<const char*, 7>{" B", " kB", " MB", " GB", " TB", " PB", " EB"});
}

std::string short_count(std::int64_t count) {
  return three_digits(count, 1000, std::array<const char*, 5>{"", "K", "M", "B", "T"});
}

std::string quoted(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=,+:@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string wrapped(const std::string& text, const std::string& indent) {
  std::vector<std::string> phrases;
  std::istringstream words(text);
  for (std::string word; words >> word;) phrases.push_back(word);
  return in_lines(phrases, "", indent, "");
}

std::string folded(const std::string& command) {
  if (command.find('\'') != std::string::npos) return "  " + command + "\n";  // a line is not cut within quotes
  std::vector<std::string> phrases;
  std::istringstream words(command);
  for (std::string word; words >> word;) {
    const bool value = phrases.size() > 0 && phrases.back().starts_with("--") && !word.starts_with("--");
    if (value)
      phrases.back() += " " + word;
    else
      phrases.push_back(word);
  }
  return in_lines(phrases, "  ", "    ", " \\");
}

std::string text_of(const Textbook& textbook) {
  const TextbookQuestion& question = textbook.question;
  std::string text =
      fmt::format("By the papers' formulas: {} parameters, {} bytes each, {} rank{}\n", short_count(question.params),
                  question.bytes.total(), question.ranks, question.ranks == 1 ? "" : "s");
  if (textbook.embedding_params > 0)
    text += fmt::format("  (12 x layers x hidden^2; an embedding of {} x {} would be {} more)\n", question.vocab,
                        question.shape->hidden, short_count(textbook.embedding_params));
  text += fmt::format("  {:<8}{:>15}{:>13}{:>23}\n", "stage", "states a rank", "", "elements sent a step");
  for (const StageFigures& figures : textbook.stages)
    text += fmt::format("  {:<8}{:>15}{:>13}{:>23}\n", figures.stage, short_decimal_size(figures.bytes.total),
                        short_size(figures.bytes.total), short_count(figures.comm_elements));
  if (const auto& figures = textbook.activations) {
    text += fmt::format("  activations of {} x {} tokens a GPU, {} GPU{} a node:\n", question.batch.samples,
                        question.batch.seq_len, question.gpus_per_node, question.gpus_per_node == 1 ? "" : "s");
    text += fmt::format("    all kept {} a node; checkpoints every {} block{} {} a node\n",
                        short_size(figures->full_bytes_per_node), question.checkpoint_interval,
                        question.checkpoint_interval == 1 ? "" : "s", short_size(figures->checkpoint_bytes_per_node));
    text += fmt::format("  working memory of a GPU: largest operator {}, activations {}\n",
                        short_size(figures->model_state_working_bytes), short_size(figures->working_bytes));
  }
  text += fmt::format("  bandwidth without overlap, at {:g} TFLOP/s a GPU:\n", question.peak_flops / 1e12);
  text += fmt::format("    {:<24}{:>12}{:>16}{:>16}", "of", "FLOP/byte", "GB/s for 50%", "GB/s for 90%");
  if (question.bytes_per_second) text += fmt::format("  {:g} GB/s", *question.bytes_per_second / 1e9);
  text += "\n";
  for (const BandwidthFigures& figures : textbook.bandwidth) {
    text += fmt::format("    {:<24}{:>12.0f}{:>16.4g}{:>16.4g}", figures.what, figures.intensity,
                        figures.bytes_per_second_for_50 / 1e9, figures.bytes_per_second_for_90 / 1e9);
    if (figures.efficiency) text += fmt::format("  {:.0f}%", 100 * *figures.efficiency);
    text += "\n";
  }
  return text;
}

std::string text_of(const TextbookChoice& choice, const Textbook& textbook) {
  std::string text = choice.fits() ? "Recommended, by the formulas alone (--model DIR plans exactly):\n"
                                   : "Nothing fits by the formulas; this comes nearest:\n";
  text += folded(command_of(choice, textbook));
  for (const Place place : kPlaces) {
    const auto i = static_cast<std::size_t>(place);
    if (choice.bytes[i] == 0) continue;
    text += fmt::format("  {} {} a rank", name_of(place), short_size(choice.bytes[i]));
    text += choice.missing[i] > 0 ? fmt::format(", {} more than there is\n", short_size(choice.missing[i])) : "\n";
  }
  return text;
}

std::string text_of(const std::vector<ExactPlan>& plans) {
  std::string text = "Exactly, by a dry pass of the run: bytes of rank 0, which has the most\n";
  text += fmt::format("  {:<2}{:<22}{:>10}{:>10}{:>10}\n", "", "stage and placement", "device", "host", "nvme");
  int stage = -1;
  for (const ExactPlan& plan : plans) {
    const PlaceBytes& bytes = plan.memory.bytes;
    text +=
        fmt::format("  {:<2}{:<22}{:>10}{:>10}{:>10}  {}\n", plan.stage == stage ? "" : fmt::format("{}", plan.stage),
                    plan.name, size_or_dash(bytes[0]), size_or_dash(bytes[1]), size_or_dash(bytes[2]), verdict(plan));
    stage = plan.stage;
  }
  return text;
}

std::string difference_text(const ExactPlan& plan, const RunSetup& setup, const Textbook& textbook) {
  const auto& figures = textbook.stages[static_cast<std::size_t>(plan.stage)];
  const TextbookDifference difference = difference_of(plan, setup, figures.bytes);
  std::string text = fmt::format("Stage {}, {}, beside the textbook\n", plan.stage, plan.name);
  const auto row = [&](const std::string& what, std::int64_t bytes) {
    text += fmt::format("  {:<52}{:>12}\n", what, short_size(bytes));
  };
  const BytesPerParam& bytes = textbook.question.bytes;
  row(fmt::format("textbook: {} + {} + {} bytes a parameter", bytes.params, bytes.grads, bytes.optimizer),
      difference.textbook);
  const KeptBytes kept = kept_bytes(setup.options);
  row(fmt::format("{} here keeps {:.3g} + {:.3g} + {:.3g} of them", name_of(setup.options.dtype), kept.params,
                  kept.grads, kept.optimizer),
      difference.kept);
  row("padding of parameters and shares", difference.padding);
  row("activations", difference.activations);
  row("working memory: gathered units, scratch, buffers", difference.working);
  row("gaps, less what does not peak at once", difference.not_at_once);
  row("exactly", difference.exact);
  return text;
}

std::string text_of(const Recommended& recommended, const OptionTexts& given) {
  if (!recommended.fits) return wrapped("Nothing fits: " + recommended.ways_out, "  ");
  std::string text = "Recommended:\n" + folded(command_of(recommended, given));
  text += fmt::format("  takes {} a rank\n", tiers_text(recommended.memory.bytes, recommended.budgets));
  if (recommended.time)
    text += fmt::format("  {} a step, {}\n", short_seconds(recommended.time->seconds), time_text(*recommended.time));
  const DeepSpeedSettings deepspeed = deepspeed_of(recommended.setup, given);
  text +=
      wrapped(fmt::format("As DeepSpeed's JSON, for --config{}{}:", deepspeed.flags_beside.empty() ? "" : " beside ",
                          deepspeed.flags_beside),
              "  ");
  return text + "  " + laid_out(deepspeed.json, "  ", 2) + "\n";
}

}  // namespace zeepo
