"""What autograd saves for the backward pass, kept in a lower tier by the engine until it is asked for."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Callable

import torch

from ._engine import Job

_LEAST_BYTES = 1 << 18
_LEAVING_AT_ONCE = 2


class Kept:
    """A saved tensor on its way down, offloaded, or on its way up."""

    __slots__ = ("job", "number", "shape", "dtype", "before", "leaving", "coming", "__weakref__")

    def __init__(self, job: Job, number: int, tensor: torch.Tensor) -> None:
        self.job = job
        self.number = number
        self.shape = tensor.shape
        self.dtype = tensor.dtype
        self.before: weakref.ref[Kept] | None = None  # saved just before this one, and asked for just after
        self.leaving: torch.Tensor | None = tensor.detach()
        self.coming: torch.Tensor | None = None

    def __del__(self) -> None:
        self.job.drop_saved(self.number)


class Activations:
    def __init__(self, job: Job, device: torch.device, parameters: set[int], stream: Callable[[], int]) -> None:
        self._job = job
        self._device = device
        self._parameters = parameters  # addresses of their memory
        self._stream = stream
        self._leaving: deque[Kept] = deque()
        self._last: weakref.ref[Kept] | None = None

    def takes(self, tensor: torch.Tensor) -> bool:
        return (
            tensor.layout == torch.strided
            and tensor.device.type == self._device.type
            and tensor.nbytes >= _LEAST_BYTES
            and tensor.is_contiguous()
            and tensor.untyped_storage().data_ptr() not in self._parameters
        )

    def pack(self, tensor: torch.Tensor) -> Kept:
        for kept in self._leaving:  # the input of several layers is saved by each of them
            if kept.leaving is not None and _same_memory(kept.leaving, tensor):
                return kept
        self._job.follow(self._stream())
        kept = Kept(self._job, self._job.keep_saved(tensor.data_ptr(), tensor.nbytes), tensor)
        kept.before, self._last = self._last, weakref.ref(kept)
        self._leaving.append(kept)
        while len(self._leaving) > _LEAVING_AT_ONCE:
            self._let_go()
        return kept

    def unpack(self, kept: Kept) -> torch.Tensor:
        while self._leaving:  # the forward pass is over
            self._let_go()
        tensor = self._start(kept)
        earlier = kept.before() if kept.before is not None else None
        if earlier is not None:
            self._start(earlier)
        self._job.wait_saved_here(kept.number)
        kept.coming = None
        return tensor

    def forget(self) -> None:
        """A pass is over, or given up."""
        while self._leaving:
            self._let_go()
        self._last = None

    def _let_go(self) -> None:
        kept = self._leaving.popleft()
        self._job.wait_saved_left(kept.number)
        kept.leaving = None

    def _start(self, kept: Kept) -> torch.Tensor:
        if kept.coming is None:
            kept.coming = torch.empty(kept.shape, dtype=kept.dtype, device=self._device)
            self._job.follow(self._stream())
            self._job.start_saved(kept.number, kept.coming.data_ptr())
        return kept.coming


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (
        a.data_ptr() == b.data_ptr()
        and a.shape == b.shape
        and a.dtype == b.dtype
        and a.stride() == b.stride()
        and a._version == b._version
    )
