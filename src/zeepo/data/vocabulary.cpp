#include "zeepo/data/vocabulary.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/data/json_value.h"

namespace zeepo {

Vocabulary Vocabulary::parse(const JsonValue& json) {
  Vocabulary result;
  const auto& members = json.object();
  result.ids_.reserve(members.size());
  result.spellings_.reserve(members.size());
  for (const auto& [spelling, value] : members) {
    const bool plain = value.is_number_unsigned() && value.get<std::uint64_t>() < std::uint64_t{kMaxVocabulary};
    if (!plain)
      throw Error("{}: the id of {:?} is {}, must be a whole number from 0 to {}", json.where(), spelling,
                  value.is_primitive() ? value.dump() : value.type_name(), kMaxVocabulary - 1);
    const auto id = value.get<std::int32_t>();
    const auto entry = result.ids_.emplace(spelling, id).first;
    const auto [other, fresh] = result.spellings_.emplace(id, &entry->first);
    if (!fresh) throw Error("{}: {:?} and {:?} have the same id {}", json.where(), *other->second, spelling, id);
    result.largest_id_ = std::max(result.largest_id_, id);
  }
  return result;
}

std::optional<std::int32_t> Vocabulary::find(std::string_view spelling) const {
  const auto found = ids_.find(spelling);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Vocabulary::spelling(std::int32_t id) const {
  const auto found = spellings_.find(id);
  return found == spellings_.end() ? nullptr : found->second;
}

}  // namespace zeepo
