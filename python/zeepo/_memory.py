"""Tensors of PyTorch's over memory that zeepo keeps."""

from __future__ import annotations

import ctypes
import functools
from typing import Callable, Sequence

import torch
import torch.utils.dlpack


class _DlTensor(ctypes.Structure):
    """DLPack's view of memory, with its owner's part behind it."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
        ("owner", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


_CPU, _CUDA, _UNSIGNED = 1, 2, 1  # DLPack's numbers
_lent: dict[int, _DlTensor] = {}  # to tensors that are still there


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _take_back(lent: int) -> None:
    _lent.pop(lent, None)


def _bytes_by_dlpack(address: int, size: int, device: torch.device) -> torch.Tensor:
    """Also of addresses that have nothing behind them now, which other ways in ask the driver about."""
    shape = ctypes.pointer(ctypes.c_int64(size))
    kind = _CUDA if device.type == "cuda" else _CPU
    lent = _DlTensor(address, kind, device.index or 0, 1, _UNSIGNED, 8, 1, shape, None, 0, None, _take_back)
    _lent[ctypes.addressof(lent)] = lent
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return torch.utils.dlpack.from_dlpack(make(ctypes.addressof(lent), b"dltensor", None))


def tensor_at(
    address: int, shape: Sequence[int], dtype: torch.dtype, device: torch.device = torch.device("cpu")
) -> torch.Tensor:
    """A tensor over memory at an address, which stays the caller's."""
    elements = 1
    for extent in shape:
        elements *= extent
    size = elements * torch.empty((), dtype=dtype).element_size()
    if device.type == "cuda":
        return _bytes_by_dlpack(address, size, device).view(dtype).view(tuple(shape))
    memory = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(memory, dtype=dtype, count=elements).view(tuple(shape))


def stream_of(device: torch.device) -> Callable[[], int]:
    """What tells the stream that PyTorch computes on now: its cudaStream_t, 0 on the CPU."""
    if device.type != "cuda":
        return lambda: 0
    return functools.partial(torch._C._cuda_getCurrentRawStream, device.index)


def floats_at(address: int, count: int) -> torch.Tensor:
    return tensor_at(address, (count,), torch.float32)
