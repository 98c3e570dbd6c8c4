#include "zeepo/checkpoint/manifest.h"

#include <limits>

#include "zeepo/base/error.h"
#include "zeepo/checkpoint/sealed_json.h"
#include "zeepo/model/strict_json.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "zeepo checkpoint 1";

Json json_of(const Manifest::StateFile& file) {
  Json tensors = Json::array();
  for (const auto& [name, sum] : file.tensors) tensors.push_back({name, sum});
  return {{"name", file.name}, {"bytes", file.bytes}, {"header", file.header}, {"tensors", std::move(tensors)}};
}

// Reads fields of one object; every fault names the manifest and the field.
class Fields {
 public:
  Fields(const nlohmann::json& object, const std::string& what) : object_(object), what_(what) {
    if (!object.is_object()) throw Error("{}: {} where an object must be", what, shown_json(object));
  }

  const nlohmann::json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) throw Error("{}: has no \"{}\"", what_, key);
    return *found;
  }
  bool has(const char* key) const {
    const auto found = object_.find(key);
    return found != object_.end() && !found->is_null();
  }
  const nlohmann::json& array(const char* key) const {
    const auto& value = at(key);
    if (!value.is_array()) fault(key, value);
    return value;
  }
  std::string text(const char* key) const {
    const auto& value = at(key);
    if (!value.is_string()) fault(key, value);
    return value.get<std::string>();
  }
  std::int64_t number(const char* key, std::int64_t least = 0) const { return number_in(key, at(key), least); }
  double real(const char* key) const { return real_in(key, at(key)); }
  std::vector<std::int64_t> numbers(const char* key) const {
    std::vector<std::int64_t> result;
    for (const auto& value : array(key)) result.push_back(number_in(key, value, 0));
    return result;
  }
  std::vector<double> reals(const char* key) const {
    std::vector<double> result;
    for (const auto& value : array(key)) result.push_back(real_in(key, value));
    return result;
  }
  std::map<std::string, std::string> texts(const char* key) const {
    std::map<std::string, std::string> result;
    const auto& value = at(key);
    if (!value.is_object()) fault(key, value);
    for (const auto& [name, entry] : value.items()) {
      if (!entry.is_string()) fault(key, entry);
      result[name] = entry.get<std::string>();
    }
    return result;
  }

 private:
  std::int64_t number_in(const char* key, const nlohmann::json& value, std::int64_t least) const {
    if (!value.is_number_integer() || value.is_number_unsigned() != (value >= 0) || value < least ||
        value > std::int64_t{1} << 60)
      fault(key, value);
    return value.get<std::int64_t>();
  }
  double real_in(const char* key, const nlohmann::json& value) const {
    if (!value.is_number()) fault(key, value);
    return value.get<double>();
  }
  [[noreturn]] void fault(const char* key, const nlohmann::json& value) const {
    throw Error("{}: \"{}\" is {}: not what a checkpoint has there", what_, key, shown_json(value));
  }

  const nlohmann::json& object_;
  const std::string& what_;
};

// A name in the checkpoint's directory: no path leads out of it.
std::string file_name(const Fields& fields, const std::string& what) {
  std::string name = fields.text("name");
  if (name.empty() || name.starts_with('.') || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos)
    throw Error("{}: the file name {} leads out of the checkpoint", what, shown(name));
  return name;
}

Manifest::StateFile file_of(const nlohmann::json& object, const std::string& what) {
  const Fields fields(object, what);
  Manifest::StateFile file{file_name(fields, what), fields.number("bytes"), fields.text("header"), {}};
  for (const auto& pair : fields.array("tensors")) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      throw Error("{}: {} where a tensor's name and checksum must be", what, shown_json(pair));
    file.tensors.emplace_back(pair[0].get<std::string>(), pair[1].get<std::string>());
  }
  return file;
}

// Checkpoints of earlier programs have none of it.
void read_layout(const Fields& fields, const std::string& what, Manifest& manifest) {
  if (fields.has("nodes"))
    for (const std::int64_t node : fields.numbers("nodes")) manifest.nodes.push_back(static_cast<int>(node));
  if (!fields.has("balance")) return;
  const Fields balance(fields.at("balance"), what);
  manifest.balance = {balance.reals("speeds"), balance.numbers("rows")};
}

}  // namespace

std::string text_of(const Manifest& manifest) {
  const LossScale::State& scale = manifest.progress.loss_scale;
  Json weights = Json::array(), files = Json::array(), model = Json::array();
  for (const auto& [name, shape] : manifest.weights) weights.push_back({{"name", name}, {"shape", shape}});
  for (const auto& file : manifest.files) files.push_back(json_of(file));
  for (const auto& [name, bytes, sum] : manifest.model_files)
    model.push_back({{"name", name}, {"bytes", bytes}, {"checksum", sum}});
  return seal(
      {{"format", kFormat},
       {"step", manifest.step},
       {"samples", manifest.samples},
       {"loss", manifest.loss},  // null where it is not a number
       {"eval_loss", manifest.eval_loss ? Json(*manifest.eval_loss) : Json(nullptr)},
       {"best", manifest.best ? Json{{"step", manifest.best->step}, {"loss", manifest.best->loss}} : Json(nullptr)},
       {"steps_taken", manifest.progress.steps_taken},
       {"loss_scale",
        {{"scale", scale.scale},
         {"good_steps", scale.good_steps},
         {"overflows_left", scale.overflows_left},
         {"in_a_row", scale.in_a_row}}},
       {"tuner",
        {{"prefetch_bytes", manifest.depths.prefetch_bytes},
         {"pieces_under_way", manifest.depths.pieces_under_way},
         {"host_share", manifest.depths.host_share}}},
       {"ranks", manifest.ranks},
       {"nodes", manifest.nodes},
       {"balance", {{"speeds", manifest.balance.speeds}, {"rows", manifest.balance.rows}}},
       {"moments", manifest.moments},
       {"dtype", manifest.dtype},
       {"options", manifest.options},
       {"origin", manifest.origin},
       {"weights", std::move(weights)},
       {"files", std::move(files)},
       {"model", std::move(model)}});
}

Manifest parse_manifest(std::string_view text, const std::string& what) {
  const nlohmann::json object = open_sealed(text, what);
  const Fields fields(object, what);
  if (const std::string format = fields.text("format"); format != kFormat)
    throw Error("{}: the format is {}, and this program reads \"{}\"", what, shown(format), kFormat);
  Manifest manifest;
  manifest.step = fields.number("step", 1);
  manifest.samples = fields.number("samples");
  manifest.loss = fields.at("loss").is_null() ? std::numeric_limits<double>::quiet_NaN() : fields.real("loss");
  if (fields.has("eval_loss")) manifest.eval_loss = fields.real("eval_loss");
  if (fields.has("best")) {
    const Fields best(fields.at("best"), what);
    manifest.best = {best.number("step", 1), best.real("loss")};
  }
  manifest.progress.steps_taken = fields.number("steps_taken");
  const Fields scale(fields.at("loss_scale"), what);
  manifest.progress.loss_scale = {static_cast<float>(scale.real("scale")), static_cast<int>(scale.number("good_steps")),
                                  static_cast<int>(scale.number("overflows_left", -1)),
                                  static_cast<int>(scale.number("in_a_row"))};
  const Fields tuner(fields.at("tuner"), what);
  manifest.depths = {tuner.number("prefetch_bytes"), static_cast<int>(tuner.number("pieces_under_way")),
                     tuner.real("host_share")};
  manifest.ranks = static_cast<int>(fields.number("ranks", 1));
  read_layout(fields, what, manifest);
  manifest.moments = static_cast<std::size_t>(fields.number("moments"));
  manifest.dtype = fields.text("dtype");
  manifest.options = fields.texts("options");
  manifest.origin = fields.texts("origin");
  for (const auto& entry : fields.array("weights")) {
    const Fields weight(entry, what);
    Manifest::Weight read{weight.text("name"), {}};
    for (const auto& extent : weight.array("shape")) {
      if (!extent.is_number_unsigned()) throw Error("{}: a shape with {}", what, shown_json(extent));
      read.shape.push_back(extent.get<std::int64_t>());
    }
    manifest.weights.push_back(std::move(read));
  }
  for (const auto& entry : fields.array("files")) manifest.files.push_back(file_of(entry, what));
  for (const auto& entry : fields.array("model")) {
    const Fields file(entry, what);
    manifest.model_files.push_back({file_name(file, what), file.number("bytes"), file.text("checksum")});
  }
  return manifest;
}

Manifest::StateFile parse_file_list(std::string_view text, const std::string& what) {
  return file_of(open_sealed(text, what), what);
}

}  // namespace zeepo
