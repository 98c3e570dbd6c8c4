#include "zeepo/infer/model_files.h"

#include <map>

#include "zeepo/base/error.h"
#include "zeepo/binding/model_units.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/model/language_model.h"

namespace zeepo {
namespace {

std::vector<WeightSlice> slices_of(const ModelConfig& config) {
  std::map<std::string, WeightSlice> slices;  // a weight may be cut into several
  const auto model = make_model(config);
  for (const Unit& unit : plan_units(*model).units)
    for (const UnitParameter& parameter : unit.parameters)
      for (const UnitWeight& weight : parameter.weights) slices.emplace(weight.slice.name, weight.slice);
  std::vector<WeightSlice> result;
  for (const auto& [name, slice] : slices) result.push_back(slice);
  return result;
}

}  // namespace

std::shared_ptr<const WeightsInFiles> weights_in_model_files(const ModelConfig& config, const WeightFiles& files,
                                                             DType dtype) {
  const auto found = std::make_shared<WeightsInFiles>();
  found->dtype = dtype;
  std::map<const SafetensorsFile*, const StoredFile*> opened;
  for (const SafetensorsFile& file : files.files()) {
    found->files.push_back(std::make_unique<StoredFile>(file.path()));
    if (found->files.back()->stamp() != file.stamp())  // the table's places are those of the file that was parsed
      throw Error("{}: has changed while it was opened; start again", file.path().string());
    opened[&file] = found->files.back().get();
  }
  for (const auto& [name, tensor] : stored_names(config, slices_of(config), files)) {
    const SafetensorsFile& file = files.file_of(tensor);
    const SafetensorsEntry& entry = files.at(tensor);
    if (entry.dtype == dtype)
      found->weights[name] = {opened.at(&file), file.offset_of(entry)};
    else if (found->why_not_all.empty())
      found->why_not_all = fmt::format("{} is {} in {}, and the run computes in {}", tensor, entry.dtype_name,
                                       file.path().filename().string(), name_of(dtype));
  }
  return found;
}

FilesInUse files_in_use(const StatePlan& plan) {
  FilesInUse use;
  bool coded = false;
  for (const UnitStates& states : plan.units) {
    if (states.params_place != Place::nvme) continue;
    coded = coded || states.form.coded();
    const auto bytes = states.form.coded()
                           ? static_cast<std::int64_t>(states.form.bytes())
                           : states.own.elements() * static_cast<std::int64_t>(size_of(plan.options.dtype));
    (states.in_others_files ? use.in_place_bytes : use.copied_bytes) += bytes;
  }
  if (use.copied_bytes == 0) return use;
  if (coded)
    use.why_copied = fmt::format("weights in {} are not what the model's files have", name_of(plan.options.stored_as));
  else
    use.why_copied = plan.options.in_files ? plan.options.in_files->why_not_all : "copies were asked for";
  return use;
}

}  // namespace zeepo
