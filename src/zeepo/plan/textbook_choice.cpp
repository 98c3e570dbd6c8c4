#include "zeepo/plan/textbook_choice.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/plan/count.h"

namespace zeepo {
namespace {

std::int64_t activations_of(const Textbook& textbook, bool checkpointing) {
  if (!textbook.activations) return 0;
  const ActivationFigures& figures = *textbook.activations;
  constexpr const char* kWhat = "bytes of activations";
  const std::int64_t kept = checkpointing ? checked_sum(kWhat, figures.checkpoint_bytes_per_gpu, figures.working_bytes)
                                          : figures.full_bytes_per_gpu;
  return checked_sum(kWhat, kept, figures.model_state_working_bytes);
}

// Bytes are at most those of the states and activations, which have been checked: a sum of five of them is as well.
TextbookChoice measured(TextbookChoice choice, const Textbook& textbook, const PlaceBytes& budgets) {
  const StateBytes& states = textbook.stages[static_cast<std::size_t>(choice.stage)].bytes;
  const auto add = [&](Place place, std::int64_t bytes) {
    std::int64_t& all = choice.bytes[static_cast<std::size_t>(place)];
    all = checked_sum("bytes of a tier", all, bytes);
  };
  add(choice.params, states.params);
  add(choice.optimizer, states.grads);
  add(choice.optimizer, states.optimizer);
  add(Place::device, activations_of(textbook, choice.checkpointing));
  for (std::size_t i = 0; i < budgets.size(); ++i)
    choice.missing[i] = std::max<std::int64_t>(0, choice.bytes[i] - budgets[i]);
  return choice;
}

std::string offload_flags(const TextbookChoice& choice) {
  std::string flags;
  if (choice.optimizer != Place::device) flags += fmt::format(" --offload-optimizer {}", name_of(choice.optimizer));
  if (choice.params != Place::device) flags += fmt::format(" --offload-param {}", name_of(choice.params));
  if (choice.optimizer == Place::nvme || choice.params == Place::nvme) flags += " --nvme-path DIR";
  if (choice.checkpointing) flags += " --activation-checkpointing";
  return flags;
}

}  // namespace

std::optional<TextbookChoice> choose_by_textbook(const Textbook& textbook, const PlaceBytes& budgets) {
  if (budgets[0] == 0) return std::nullopt;
  const bool alone = textbook.question.ranks == 1;
  const int sharded = alone ? 0 : 3;
  std::vector<TextbookChoice> choices;
  const auto add = [&](int stage, Place optimizer, Place params) {
    for (const bool checkpointing : {false, true}) {
      if (checkpointing && !textbook.activations) continue;
      TextbookChoice choice;
      choice.stage = stage;
      choice.optimizer = optimizer;
      choice.params = params;
      choice.checkpointing = checkpointing;
      choices.push_back(choice);
    }
  };
  if (!alone) add(2, Place::device, Place::device);
  add(sharded, Place::device, Place::device);
  add(sharded, Place::host, Place::device);
  add(sharded, Place::host, Place::host);
  add(sharded, Place::nvme, Place::device);
  add(sharded, Place::nvme, Place::host);
  add(sharded, Place::nvme, Place::nvme);
  TextbookChoice last;
  for (const TextbookChoice& choice : choices) {
    last = measured(choice, textbook, budgets);
    if (last.fits()) break;
  }
  return last;
}

std::string command_of(const TextbookChoice& choice, const Textbook& textbook) {
  const TextbookQuestion& question = textbook.question;
  const std::string launch = question.ranks > 1 ? fmt::format("mpirun -n {} ", question.ranks) : "";
  return fmt::format("{}zeepo train --model DIR --data FILE --stage {} --seq-len {} --micro-batch {}{}", launch,
                     choice.stage, question.batch.seq_len, question.batch.samples, offload_flags(choice));
}

nlohmann::ordered_json to_json(const TextbookChoice& choice, const Textbook& textbook) {
  const auto by_place = [](const PlaceBytes& bytes) {
    nlohmann::ordered_json json;
    for (const Place place : kPlaces) json[std::string(name_of(place))] = bytes[static_cast<std::size_t>(place)];
    return json;
  };
  const auto where = [](Place place) { return place == Place::device ? "none" : std::string(name_of(place)); };
  return {{"by", "formulas"},
          {"fits", choice.fits()},
          {"stage", choice.stage},
          {"offload_optimizer", where(choice.optimizer)},
          {"offload_param", where(choice.params)},
          {"activation_checkpointing", choice.checkpointing},
          {"bytes_per_rank", by_place(choice.bytes)},
          {"missing_bytes", by_place(choice.missing)},
          {"command", command_of(choice, textbook)}};
}

}  // namespace zeepo
