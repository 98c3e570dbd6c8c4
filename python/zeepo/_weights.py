"""Modules made without memory, and weights read from files into them."""

from __future__ import annotations

import functools
import mmap
import os
import tempfile
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

    `with zeepo.Init(directory):` keeps fresh values: each parameter's memory is a file without a name in the directory,
    until zeepo.init() has taken the values over. No more than one parameter at a time is in memory for good.
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        self._directory = directory
        self._before: list[Any] = []

    def __enter__(self) -> "Init":
        original = nn.Module.register_parameter
        placed = WeakIdKeyDictionary()  # of parameters that have become a module's, and may become another's too
        made = WeakIdKeyDictionary()  # those in their places

        @functools.wraps(original)
        def register_parameter(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
            if param is not None and not is_lazy(param) and param.device.type != "meta" and param not in made:
                if param not in placed:
                    placed[param] = _like(param, self._memory_for(param.detach()))
                    made[placed[param]] = True
                param = placed[param]
            original(module, name, param)

        self._before.append(original)
        nn.Module.register_parameter = register_parameter  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: Any) -> None:
        nn.Module.register_parameter = self._before.pop()  # type: ignore[method-assign]

    def _memory_for(self, values: torch.Tensor) -> torch.Tensor:
        if self._directory is None:
            return values.to("meta")
        in_memory = values.device.type == "cpu" and values.numel() > 0
        return _in_file(values, Path(self._directory)) if in_memory else values


def _like(parameter: nn.Parameter, memory: torch.Tensor) -> nn.Parameter:
    other = nn.Parameter(memory, requires_grad=parameter.requires_grad)
    other.__class__ = parameter.__class__
    other.__dict__.update(parameter.__dict__)
    return other


def _in_file(values: torch.Tensor, directory: Path) -> torch.Tensor:
    """The values in a file without a name, which goes with the tensor."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, values.nbytes)
        except OSError as error:
            raise Error(f"Init: {directory}: no room for {values.nbytes} bytes of a parameter: {error.strerror}") from None
        memory = mmap.mmap(file.fileno(), values.nbytes)
    tensor = torch.frombuffer(memory, dtype=values.dtype).view(values.shape)
    return tensor.copy_(values)


def read_weights(model: nn.Module, directory: str | Path) -> None:
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
