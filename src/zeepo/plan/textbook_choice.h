// What to try first by the papers' formulas, where there is no model to plan exactly: which stage, what is offloaded.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "zeepo/budget/placement_search.h"
#include "zeepo/plan/textbook.h"

namespace zeepo {

struct TextbookChoice {
  int stage = 0;
  Place optimizer = Place::device, params = Place::device;  // gradients stay with the optimizer's state
  bool checkpointing = false;
  PlaceBytes bytes{};    // of a rank, by tier
  PlaceBytes missing{};  // 0 where there is room
  bool fits() const { return missing == PlaceBytes{}; }
};

// The first that fits, of what costs least: a rank alone at stage 0; several at stage 2, which sends what stage 0 does,
// then 3; then the optimizer's state in host memory, parameters as well, and files. Each with all activations, then
// with checkpoints. Where nothing fits, the last. A budget of 0 is not given: of the device, nothing can be said and
// there is no choice; of the host and files, there is none.
std::optional<TextbookChoice> choose_by_textbook(const Textbook& textbook, const PlaceBytes& budgets);

nlohmann::ordered_json to_json(const TextbookChoice& choice, const Textbook& textbook);
// "mpirun -n 64 zeepo train --model DIR --data FILE --stage 2 ..."
std::string command_of(const TextbookChoice& choice, const Textbook& textbook);

}  // namespace zeepo
