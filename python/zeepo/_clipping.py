"""What torch.nn.utils has for gradients, of a module whose gradients are zeepo's: clip_grad_norm_, no clip_grad_value_."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable

import torch
from torch import nn
from torch.nn.utils import clip_grad

from ._engine import Error

_PLACES = (torch.nn.utils, clip_grad)
_NORM, _VALUE = "clip_grad_norm_", "clip_grad_value_"


class Clipping:
    """Loops that call PyTorch's function, Trainer's among them, get zeepo's for the module, and PyTorch's for others."""

    def __init__(self, own: set[nn.Parameter], trained: set[nn.Parameter], clip: Callable[[float], torch.Tensor]) -> None:
        self._before: list[Any] = [(place, name, getattr(place, name)) for place in _PLACES for name in (_NORM, _VALUE)]
        original, original_of_values = getattr(clip_grad, _NORM), getattr(clip_grad, _VALUE)

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

        @functools.wraps(original_of_values)
        def clip_grad_value_(parameters: torch.Tensor | Iterable[torch.Tensor], *others: Any, **more: Any) -> None:
            listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            if set(listed) & own:
                raise Error("clip_grad_value_: zeepo clips by the norm: clip_grad_norm_, or zeepo.init(clip=)")
            original_of_values(listed, *others, **more)

        for place in _PLACES:
            setattr(place, _NORM, clip_grad_norm_)
            setattr(place, _VALUE, clip_grad_value_)

    def remove(self) -> None:
        for place, name, before in self._before:
            setattr(place, name, before)
