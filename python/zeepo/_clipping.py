"""torch.nn.utils.clip_grad_norm_ of a module whose gradients are zeepo's."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable

import torch
from torch import nn
from torch.nn.utils import clip_grad

from ._engine import Error

_PLACES = (torch.nn.utils, clip_grad)
_NAME = "clip_grad_norm_"


class Clipping:
    """Loops that call PyTorch's function, Trainer's among them, get zeepo's for the module, and PyTorch's for others."""

    def __init__(self, own: set[nn.Parameter], trained: set[nn.Parameter], clip: Callable[[float], torch.Tensor]) -> None:
        self._before: list[Any] = [getattr(place, _NAME) for place in _PLACES]
        original = self._before[0]

        @functools.wraps(original)
        def clip_grad_norm_(
            parameters: torch.Tensor | Iterable[torch.Tensor],
            max_norm: float,
            norm_type: float = 2.0,
            *others: Any,
            **more: Any,
        ) -> torch.Tensor:
            listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            given = set(listed)
            if not given & own:
                return original(listed, max_norm, norm_type, *others, **more)
            if not trained <= given or given - own:
                raise Error("clip_grad_norm_: zeepo clips all parameters of its module together; give all of them")
            if norm_type != 2:
                raise Error(f"clip_grad_norm_: norm_type={norm_type}: zeepo clips by the norm of 2")
            return clip(float(max_norm))

        for place in _PLACES:
            setattr(place, _NAME, clip_grad_norm_)

    def remove(self) -> None:
        for place, before in zip(_PLACES, self._before):
            setattr(place, _NAME, before)
