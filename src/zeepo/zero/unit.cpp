#include "zeepo/zero/unit.h"

#include <algorithm>
#include <map>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

struct UnitRoot {
  std::string prefix;
  Module* module;
};

void find_marked(Module& module, const std::string& prefix, std::vector<UnitRoot>& roots) {
  if (module.is_unit()) {
    roots.push_back({prefix, &module});
    return;
  }
  for (const auto& [name, inner] : module.children())
    find_marked(*inner, name.empty() ? prefix : prefix + name + ".", roots);
}

std::vector<UnitRoot> unit_roots(Module& model) {
  std::vector<UnitRoot> roots;
  find_marked(model, "", roots);
  if (roots.empty())
    for (const auto& [name, inner] : model.children()) roots.push_back({name.empty() ? "" : name + ".", inner.get()});
  return roots;
}

// "model.layers.0"; a module without a name of its own goes by its first parameter's.
std::string name_of(const UnitRoot& root, const std::vector<NamedParameter>& parameters) {
  if (!root.prefix.empty()) return root.prefix.substr(0, root.prefix.size() - 1);
  return parameters.empty() ? "" : parameters.front().prefix + parameters.front().parameter->name();
}

Unit lay_out(std::string name, const std::vector<NamedParameter>& parameters) {
  Unit unit{std::move(name), {}, 0};
  for (const auto& [prefix, parameter] : parameters) {
    unit.parameters.push_back({prefix, parameter, unit.elements});
    unit.elements += (parameter->elements() + Unit::kAlignment - 1) / Unit::kAlignment * Unit::kAlignment;
  }
  return unit;
}

}  // namespace

UnitPlan plan_units(Module& model, std::int64_t blocks_per_unit) {
  if (blocks_per_unit < 1) throw Error("units: {} blocks a unit: must be at least 1", blocks_per_unit);
  UnitPlan plan;
  std::map<const Parameter*, std::size_t> unit_of;
  const auto add_unit = [&](std::string name, const std::vector<NamedParameter>& parameters) {
    if (parameters.empty()) return;
    for (const auto& [prefix, parameter] : parameters) unit_of[parameter] = plan.units.size();
    plan.units.push_back(lay_out(std::move(name), parameters));
  };

  const auto roots = unit_roots(model);
  for (std::size_t first = 0; first < roots.size();) {
    std::vector<NamedParameter> parameters = named_parameters(*roots[first].module, roots[first].prefix);
    std::size_t next = first + 1;
    const auto joins = [&](std::size_t i) {
      return roots[first].module->is_checkpointable() && roots[i].module->is_checkpointable() &&
             static_cast<std::int64_t>(i - first) < blocks_per_unit;
    };
    for (; next < roots.size() && joins(next); ++next)
      for (const auto& named : named_parameters(*roots[next].module, roots[next].prefix)) parameters.push_back(named);
    add_unit(name_of(roots[first], parameters), parameters);
    first = next;
  }
  std::vector<NamedParameter> rest;
  for (const auto& named : named_parameters(model))
    if (!unit_of.contains(named.parameter)) rest.push_back(named);
  const std::size_t always_there = plan.units.size();
  add_unit("rest", rest);

  for (const auto& root : roots) {
    UnitVisit visit{root.module, {}, name_of(root, named_parameters(*root.module, root.prefix))};
    const auto need = [&](const Parameter* parameter) {
      const auto unit = unit_of.find(parameter);
      if (unit == unit_of.end())
        throw Error("unit: parameter {} is borrowed from outside the model", parameter->name());
      if (unit->second == always_there) return;  // the model may use it at any time, around the visits too
      if (std::find(visit.units.begin(), visit.units.end(), unit->second) == visit.units.end())
        visit.units.push_back(unit->second);
    };
    for_each_module(*root.module, [&](Module& module) {
      for (const auto& parameter : module.own_parameters()) need(parameter.get());
      for (const Parameter* parameter : module.borrowed_parameters()) need(parameter);
    });
    plan.visits.push_back(std::move(visit));
  }
  return plan;
}

}  // namespace zeepo
