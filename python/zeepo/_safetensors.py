"""Tensors in the bytes of the safetensors format."""

from __future__ import annotations

import ctypes
import json
import mmap
import struct
from pathlib import Path
from typing import Iterator, Mapping

import torch

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
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_MOST_HEADER_BYTES = 100_000_000

# The format's name of its dtype, its shape, its bytes.
Stored = tuple[str, list[int], bytes]


def stored(tensor: torch.Tensor, name: str) -> Stored:
    if tensor.dtype not in _NAMES:
        raise Error(f"{name}: {tensor.dtype} cannot be written as safetensors")
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return _NAMES[tensor.dtype], list(tensor.shape), ctypes.string_at(flat.data_ptr(), flat.numel())


def to_bytes(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """A whole file, the widest dtypes first so that all are aligned."""
    table, values, begin = {}, [], 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        dtype, shape, data = stored(tensor, name)
        table[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + len(data)]}
        values.append(data)
        begin += len(data)
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)
    return b"".join([struct.pack("<Q", len(header)), header, *values])


def tensors_of(data: bytearray | mmap.mmap, what: str) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors of a file's bytes, as views where they are aligned."""
    size = len(data)
    length = struct.unpack("<Q", data[:8])[0] if size >= 8 else 0
    if not 2 <= length <= min(_MOST_HEADER_BYTES, size - 8):
        raise Error(f"{what}: not a safetensors file")
    try:
        table = json.loads(data[8 : 8 + length])
    except ValueError as error:
        raise Error(f"{what}: its header is not JSON: {error}") from None
    if not isinstance(table, dict):
        raise Error(f"{what}: its header is not a table")
    first = 8 + length
    for name, entry in table.items():
        if name == "__metadata__":
            continue
        try:
            dtype, shape = _DTYPES[entry["dtype"]], [int(extent) for extent in entry["shape"]]
            begin, end = (int(offset) for offset in entry["data_offsets"])
        except (KeyError, TypeError, ValueError):
            raise Error(f"{what}: {name}: an entry that cannot be read") from None
        elements = 1
        for extent in shape:
            elements *= extent
        width = torch.empty((), dtype=dtype).element_size()
        if min(shape, default=1) < 0 or not 0 <= begin <= end <= size - first or end - begin != elements * width:
            raise Error(f"{what}: {name}: bytes {begin} to {end} are not {shape} of {entry['dtype']} in the file")
        if elements == 0:
            yield name, torch.empty(shape, dtype=dtype)
        elif (first + begin) % width == 0:
            yield name, torch.frombuffer(data, dtype=dtype, count=elements, offset=first + begin).view(shape)
        else:
            yield name, torch.frombuffer(bytearray(data[first + begin : first + end]), dtype=dtype).view(shape)


def tensors_in(file: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors of a file, mapped and not read; who writes to one has a copy of its own of what it writes to."""
    if file.stat().st_size == 0:
        raise Error(f"{file}: not a safetensors file")
    with open(file, "rb") as opened:
        data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
    yield from tensors_of(data, str(file))
