"""Modules made without memory, and weights read from files into them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, Iterator

import torch
from torch import nn

from ._engine import Error

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_MOST_HEADER_BYTES = 100_000_000


class Init:
    """`with zeepo.Init(): model = MyModel()`: shapes without memory. load_weights() gives the module its values."""

    def __init__(self) -> None:
        self._device = torch.device("meta")

    def __enter__(self) -> "Init":
        self._device.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._device.__exit__(*error)


def _tensors_in(file: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors of a safetensors file, mapped and not read."""
    size = file.stat().st_size
    with open(file, "rb") as opened:
        start = opened.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(_MOST_HEADER_BYTES, size - 8):
            raise Error(f"{file}: not a safetensors file")
        try:
            table = json.loads(opened.read(length))
        except ValueError as error:
            raise Error(f"{file}: its header is not JSON: {error}") from None
    if not isinstance(table, dict):
        raise Error(f"{file}: its header is not a table")
    bytes_after = size - 8 - length
    data = torch.from_file(str(file), shared=False, size=size, dtype=torch.uint8)[8 + length :] if bytes_after else None
    for name, entry in table.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape = _DTYPES[entry["dtype"]], [int(extent) for extent in entry["shape"]]
            begin, end = (int(offset) for offset in entry["data_offsets"])
        except (KeyError, TypeError, ValueError):
            raise Error(f"{file}: {name}: an entry that cannot be read") from None
        elements = 1
        for extent in shape:
            elements *= extent
        width = torch.empty((), dtype=dtype).element_size()
        if min(shape, default=1) < 0 or not 0 <= begin <= end <= bytes_after or end - begin != elements * width:
            raise Error(f"{file}: {name}: bytes {begin} to {end} are not {shape} of {entry['dtype']} in the file")
        if elements == 0 or data is None:
            yield name, torch.empty(shape, dtype=dtype)
        else:
            yield name, data[begin:end].clone().view(dtype).view(shape)


def load_weights(model: nn.Module, directory: str | Path) -> None:
    """Reads the module's parameters and buffers from the safetensors files of a directory, tensor by tensor.

    Those made under Init() get memory now. Before zeepo.init().
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
        for name, value in _tensors_in(file):
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
