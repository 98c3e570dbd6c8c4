"""Tensors of PyTorch's over memory that zeepo keeps."""

from __future__ import annotations

import ctypes
from typing import Sequence

import torch


def tensor_at(address: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor over memory at an address, which stays the caller's."""
    elements = 1
    for extent in shape:
        elements *= extent
    size = elements * torch.empty((), dtype=dtype).element_size()
    memory = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(memory, dtype=dtype, count=elements).view(tuple(shape))


def floats_at(address: int, count: int) -> torch.Tensor:
    return tensor_at(address, (count,), torch.float32)
