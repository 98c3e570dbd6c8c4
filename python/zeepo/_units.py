"""How a module is cut into units: parameters that are fetched, sent and stepped together."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


@dataclass
class Place:
    """Where a parameter is: its unit, and its number in the unit."""

    unit: int
    index: int
    name: str


@dataclass
class Units:
    names: list[str] = field(default_factory=list)
    parameters: list[list[nn.Parameter]] = field(default_factory=list)
    places: dict[nn.Parameter, Place] = field(default_factory=dict)
    # The units that a module needs when its forward begins.
    needs: dict[nn.Module, tuple[int, ...]] = field(default_factory=dict)


def _is_block(module: nn.Module, in_container: bool) -> bool:
    """An element of a list of modules, or a module whose children have no parameters, travels as a whole."""
    if isinstance(module, _CONTAINERS):
        return False
    if in_container:
        return True
    return not any(True for child in module.children() for _ in child.parameters())


def cut_into_units(model: nn.Module) -> Units:
    """One unit for each block, and one for the parameters that a module around blocks has of its own.

    A tied parameter belongs to the first unit that has it; every module that has it needs that unit.
    """
    units = Units()

    def add(name: str, named: list[tuple[str, nn.Parameter]]) -> None:
        new = [(n, p) for n, p in named if p not in units.places and p.numel() > 0]
        if not new:
            return
        # Frozen parameters beside trained ones would be reduced and stepped with them.
        for trained in (True, False):
            part = [(n, p) for n, p in new if p.requires_grad == trained]
            if not part:
                continue
            number = len(units.names)
            units.names.append(name if trained or len(part) == len(new) else f"{name} (frozen)")
            units.parameters.append([p for _, p in part])
            for index, (n, p) in enumerate(part):
                units.places[p] = Place(number, index, n)

    def walk(module: nn.Module, prefix: str, in_container: bool) -> None:
        dot = prefix + "." if prefix else ""
        if _is_block(module, in_container):
            add(prefix or "model", [(dot + n, p) for n, p in module.named_parameters()])
            return
        add(prefix or "model", [(dot + n, p) for n, p in module.named_parameters(recurse=False)])
        for name, child in module.named_children():
            walk(child, dot + name, isinstance(module, _CONTAINERS))

    walk(model, "", False)
    _find_needs(model, units)
    return units


def _find_needs(model: nn.Module, units: Units) -> None:
    needs: dict[nn.Module, set[int]] = {}

    def own(module: nn.Module) -> set[int]:
        return {units.places[p].unit for p in module.parameters(recurse=False) if p in units.places}

    def walk(module: nn.Module, around: set[int], in_container: bool) -> None:
        block = _is_block(module, in_container)
        wanted = {units.places[p].unit for p in module.parameters() if p in units.places} if block else own(module)
        # A module around others uses its own parameters before and after them.
        needs.setdefault(module, set()).update(wanted | around)
        inner = around | wanted
        for child in module.children():
            if block:
                _walk_block(child, inner)
            else:
                walk(child, inner, isinstance(module, _CONTAINERS))

    def _walk_block(module: nn.Module, inner: set[int]) -> None:
        if own(module):
            needs.setdefault(module, set()).update(inner)
        for child in module.children():
            _walk_block(child, inner)

    walk(model, set(), False)
    units.needs = {module: tuple(sorted(wanted)) for module, wanted in needs.items() if wanted}
