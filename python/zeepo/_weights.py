"""Modules made without memory, and weights read from files into them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

from ._engine import Error
from ._safetensors import tensors_in


class Init:
    """`with zeepo.Init(): model = MyModel()`: parameters without memory. load_weights() gives them their values.

    A parameter gives its memory back when it becomes a module's. Buffers have values as always: those that a module
    computes for itself are in no file.
    """

    def __init__(self) -> None:
        self._before: list[Any] = []

    def __enter__(self) -> "Init":
        original = nn.Module.register_parameter
        empty = WeakIdKeyDictionary()  # of parameters that have become a module's, and may become another's too

        @functools.wraps(original)
        def register_parameter(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
            if param is not None and not is_lazy(param) and param.device.type != "meta":
                if param not in empty:
                    empty[param] = _without_memory(param)
                param = empty[param]
            original(module, name, param)

        self._before.append(original)
        nn.Module.register_parameter = register_parameter  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: Any) -> None:
        nn.Module.register_parameter = self._before.pop()  # type: ignore[method-assign]


def _without_memory(parameter: nn.Parameter) -> nn.Parameter:
    empty = nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
    empty.__class__ = parameter.__class__
    empty.__dict__.update(parameter.__dict__)
    return empty


def load_weights(model: nn.Module, directory: str | Path) -> None:
    """Reads the module's parameters and buffers from the safetensors files of a directory, tensor by tensor.

    Those made under Init() become views of the files, where the dtype is the same: zeepo.init() reads them from there.
    Before zeepo.init().
    """
    folder = Path(directory)
    files = [folder] if folder.is_file() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise Error(f"load_weights: {folder}: has no safetensors file")
    places: dict[str, tuple[nn.Module, str]] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name in [*module._parameters, *module._buffers]:
            places[f"{prefix}.{name}" if prefix else name] = (module, name)
    given: dict[int, Any] = {}  # by identity: tied parameters stay tied
    for file in files:
        for name, value in tensors_in(file):
            if name in places:
                _give(*places[name], value, name, given)
    _tie(places, given)
    missing = [name for name, (module, own) in places.items() if _is_meta(module, own)]
    if missing:
        more = f", nor {len(missing) - 1} others" if len(missing) > 1 else ""
        raise Error(f"load_weights: {folder}: has no {missing[0]}{more}")


def _own(module: nn.Module, name: str) -> torch.Tensor | None:
    return module._parameters.get(name) if name in module._parameters else module._buffers.get(name)


def _is_meta(module: nn.Module, name: str) -> bool:
    value = _own(module, name)
    return value is not None and value.device.type == "meta"


def _give(module: nn.Module, name: str, value: torch.Tensor, full_name: str, given: dict[int, Any]) -> None:
    old = _own(module, name)
    if old is None:
        return
    if old.shape != value.shape:
        raise Error(f"load_weights: {full_name}: {list(value.shape)} in the file, {list(old.shape)} in the module")
    if old.device.type != "meta":
        with torch.no_grad():
            old.copy_(value)
        return
    new: Any = value.to(old.dtype)
    if isinstance(old, nn.Parameter):
        new = nn.Parameter(new, requires_grad=old.requires_grad)
        module._parameters[name] = new
    else:
        module._buffers[name] = new
    given[id(old)] = (old, new)


def _tie(places: dict[str, tuple[nn.Module, str]], given: dict[int, Any]) -> None:
    for module, name in places.values():
        old = _own(module, name)
        if old is not None and id(old) in given and given[id(old)][0] is old:
            (module._parameters if name in module._parameters else module._buffers)[name] = given[id(old)][1]
