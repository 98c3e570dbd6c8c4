#include "zeepo/model/strict_json.h"

#include <set>
#include <vector>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxShownBytes = 120;
constexpr std::size_t kMaxFaultBytes = 300;  // the parser repeats the text it stumbled over, however long

// Called by the parser as it goes, so that a hostile text is refused before it has been built.
class Watch {
 public:
  explicit Watch(const std::string& what) : what_(what) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start: keys_.emplace_back(); [[fallthrough]];
      case Json::parse_event_t::array_start:
        if (depth >= kMaxJsonDepth) throw Error("{}: nested deeper than {} levels", what_, kMaxJsonDepth);
        break;
      case Json::parse_event_t::object_end: keys_.pop_back(); break;
      case Json::parse_event_t::key:
        if (const auto& key = parsed.get_ref<const std::string&>(); !keys_.back().insert(key).second)
          throw Error("{}: the key {} is given twice", what_, shown(key));
        break;
      default: break;
    }
    return true;
  }

 private:
  const std::string& what_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open, outermost first
};

}  // namespace

Json parse_json_object(std::string_view text, const std::string& what) {
  Json value;
  try {
    value = Json::parse(text, [watch = Watch(what)](int depth, Json::parse_event_t event, Json& parsed) mutable {
      return watch(depth, event, parsed);
    });
  } catch (const Json::exception& fault) {
    throw Error("{}: not JSON: {}", what, std::string_view(fault.what()).substr(0, kMaxFaultBytes));
  }
  if (!value.is_object()) throw Error("{}: holds {}, must be a JSON object", what, value.type_name());
  return value;
}

std::string shown(std::string_view text) {
  const bool cut = text.size() > kMaxShownBytes;
  const Json start = std::string(text.substr(0, kMaxShownBytes));
  return start.dump(-1, ' ', false, Json::error_handler_t::replace) + (cut ? "..." : "");
}

std::string shown_json(const Json& value) {
  if (value.is_string()) return shown(value.get_ref<const std::string&>());
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kMaxShownBytes ? text : text.substr(0, kMaxShownBytes) + "...";
}

}  // namespace zeepo
