#include "zeepo/model/strict_json.h"

#include <set>
#include <vector>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxShownBytes = 120;
constexpr std::size_t kMaxFaultBytes = 300;  // the parser repeats the text it stumbled over, however long

// Goes through a text before anything is built of it, so that a hostile one is refused in time. A callback of the
// parser would do, but with one it looks through all of an object's values whenever one of them ends.
class Watch final : public nlohmann::json_sax<Json> {
 public:
  explicit Watch(const std::string& what) : what_(what) {}

  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return start_array(0);
  }
  bool key(std::string& name) override {
    if (!keys_.back().insert(name).second) throw Error("{}: the key {} is given twice", what_, shown(name));
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return end_array();
  }
  bool start_array(std::size_t) override {
    if (depth_++ >= kMaxJsonDepth) throw Error("{}: nested deeper than {} levels", what_, kMaxJsonDepth);
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(Json::number_integer_t) override { return true; }
  bool number_unsigned(Json::number_unsigned_t) override { return true; }
  bool number_float(Json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  // The parser says so again when it builds.
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  const std::string& what_;
  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open, outermost first
};

}  // namespace

Json parse_json_object(std::string_view text, const std::string& what) {
  Json value;
  try {
    Watch watch(what);
    (void)Json::sax_parse(text, &watch);
    value = Json::parse(text);
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
