#include "zeepo/binding/model_units.h"

#include <algorithm>
#include <map>
#include <set>

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

void find_tiles(Module& module, const std::string& prefix, std::vector<UnitRoot>& tiles) {
  if (module.is_tile()) tiles.push_back({prefix, &module});
  for (const auto& [name, inner] : module.children())
    find_tiles(*inner, name.empty() ? prefix : prefix + name + ".", tiles);
}

std::vector<UnitRoot> tiles_in(const UnitRoot& root) {
  std::vector<UnitRoot> tiles;
  find_tiles(*root.module, root.prefix, tiles);
  return tiles;
}

std::vector<NamedParameter> outside_tiles(const UnitRoot& root) {
  std::vector<NamedParameter> parameters = named_parameters(*root.module, root.prefix);
  std::set<const Parameter*> in_tiles;
  for (const auto& tile : tiles_in(root))
    for (const auto& parameter : tile.module->own_parameters()) in_tiles.insert(parameter.get());
  std::erase_if(parameters, [&](const NamedParameter& named) { return in_tiles.contains(named.parameter); });
  return parameters;
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
    UnitParameter laid{unit.elements, parameter->shape(), parameter->leaf().trainable(), {}};
    for (const auto& part : parameter->slices())
      laid.weights.push_back({{prefix + part.name, part.shape, parameter->init()}, part.begin, part.elements});
    unit.parameters.push_back(std::move(laid));
    unit.elements += (parameter->elements() + Unit::kAlignment - 1) / Unit::kAlignment * Unit::kAlignment;
  }
  return unit;
}

}  // namespace

ModelUnits plan_units(Module& model, std::int64_t blocks_per_unit) {
  if (blocks_per_unit < 1) throw Error("units: {} blocks a unit: must be at least 1", blocks_per_unit);
  ModelUnits plan;
  std::map<const Parameter*, std::size_t> unit_of;
  const auto add_alike = [&](std::string name, const std::vector<NamedParameter>& parameters) {
    if (parameters.empty()) return;
    auto& in_unit = plan.parameters.emplace_back();
    for (const auto& [prefix, parameter] : parameters) {
      unit_of[parameter] = plan.units.size();
      in_unit.push_back(parameter);
    }
    plan.units.push_back(lay_out(std::move(name), parameters));
  };
  const auto add_unit = [&](const std::string& name, std::vector<NamedParameter> parameters) {
    const auto frozen = std::stable_partition(parameters.begin(), parameters.end(), [](const NamedParameter& named) {
      return named.parameter->leaf().trainable();
    });
    const bool mixed = frozen != parameters.begin() && frozen != parameters.end();
    add_alike(name, {parameters.begin(), frozen});
    add_alike(mixed ? name + " (frozen)" : name, {frozen, parameters.end()});
  };
  std::map<std::string, int> tiles_of_layer;
  const auto add_tile = [&](const UnitRoot& tile) {
    const auto parameters = named_parameters(*tile.module, tile.prefix);
    add_unit(fmt::format("{} tile {}", name_of(tile, parameters), tiles_of_layer[tile.prefix]++), parameters);
  };

  const auto roots = unit_roots(model);
  for (std::size_t first = 0; first < roots.size();) {
    std::vector<NamedParameter> parameters = outside_tiles(roots[first]);
    std::size_t next = first + 1;
    const auto joins = [&](std::size_t i) {
      return roots[first].module->is_checkpointable() && roots[i].module->is_checkpointable() &&
             static_cast<std::int64_t>(i - first) < blocks_per_unit;
    };
    for (; next < roots.size() && joins(next); ++next)
      for (const auto& named : outside_tiles(roots[next])) parameters.push_back(named);
    add_unit(name_of(roots[first], parameters), parameters);
    for (std::size_t i = first; i < next; ++i)
      for (const auto& tile : tiles_in(roots[i])) add_tile(tile);
    first = next;
  }
  const UnitRoot all{"", &model};
  std::vector<UnitRoot> tiles_outside;
  for (const auto& tile : tiles_in(all))
    if (!unit_of.contains(tile.module->own_parameters().front().get())) tiles_outside.push_back(tile);
  for (const auto& tile : tiles_outside) add_tile(tile);
  std::vector<NamedParameter> rest;
  for (const auto& named : named_parameters(model))
    if (!unit_of.contains(named.parameter)) rest.push_back(named);
  const std::size_t always_there = plan.units.size();
  add_unit("rest", rest);

  const auto need = [&](UnitVisit& visit, const Parameter* parameter) {
    const auto unit = unit_of.find(parameter);
    if (unit == unit_of.end()) throw Error("unit: parameter {} is borrowed from outside the model", parameter->name());
    if (unit->second >= always_there) return;  // the model may use it at any time, around the visits too
    if (std::find(visit.units.begin(), visit.units.end(), unit->second) == visit.units.end())
      visit.units.push_back(unit->second);
  };
  const auto add_tile_visit = [&](const UnitRoot& tile, std::optional<std::size_t> around) {
    UnitVisit visit{around ? plan.visits[*around].units : std::vector<std::size_t>(),
                    name_of(tile, named_parameters(*tile.module, tile.prefix)), around};
    for (const auto& parameter : tile.module->own_parameters()) need(visit, parameter.get());
    plan.visits.push_back(std::move(visit));
    plan.modules.push_back(tile.module);
  };
  for (const auto& root : roots) {
    UnitVisit visit{{}, name_of(root, named_parameters(*root.module, root.prefix))};
    for_each_module(*root.module, [&](Module& module) {
      if (module.is_tile()) return;
      for (const auto& parameter : module.own_parameters()) need(visit, parameter.get());
      for (const Parameter* parameter : module.borrowed_parameters()) need(visit, parameter);
    });
    const std::size_t around = plan.visits.size();
    plan.visits.push_back(std::move(visit));
    plan.modules.push_back(root.module);
    for (const auto& tile : tiles_in(root)) add_tile_visit(tile, around);
  }
  for (const auto& tile : tiles_outside) add_tile_visit(tile, std::nullopt);
  return plan;
}

std::int64_t blocks_worth_a_message(Module& model) {
  constexpr std::int64_t kFewestUnits = 4;
  std::int64_t blocks = 0, elements = 0;
  for (const UnitRoot& root : unit_roots(model)) {
    if (!root.module->is_checkpointable()) continue;
    ++blocks;
    for (const auto& named : named_parameters(*root.module, root.prefix)) elements += named.parameter->elements();
  }
  if (elements == 0) return 1;
  const std::int64_t wanted = (kLeastUnitElements * blocks + elements - 1) / elements;
  return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, blocks / kFewestUnits));
}

}  // namespace zeepo
