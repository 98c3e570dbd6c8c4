"""What torch.nn.utils has for gradients, of a module whose gradients are zeepo's: clip_grad_norm_, and none of the others.

PyTorch's decorator calls the function that it wraps through a cell. Another function in the cell is called also by who
has imported PyTorch's by name.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterable

import torch
from torch import nn
from torch.nn.utils import clip_grad

from ._engine import Error

Tensors = torch.Tensor | Iterable[torch.Tensor]


def _listed(tensors: Tensors) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


class _Replaced:
    """A function of torch.nn.utils.clip_grad, for as long as another one stands in its place."""

    def __init__(self, name: str, replace: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._name = name
        function = getattr(clip_grad, name, None)
        if function is None:  # in newer PyTorch
            self._put = lambda _: None
            return
        wraps = getattr(function, "__code__", None)
        if wraps is not None and "func" in wraps.co_freevars:
            cell = function.__closure__[wraps.co_freevars.index("func")]
            self._put = lambda function: setattr(cell, "cell_contents", function)
            self._before = cell.cell_contents
        else:
            self._put = self._put_by_name
            self._before = function
        self._put(functools.wraps(self._before)(replace(self._before)))

    def _put_by_name(self, function: Callable[..., Any]) -> None:
        for place in (torch.nn.utils, clip_grad):
            setattr(place, self._name, function)

    def remove(self) -> None:
        self._put(getattr(self, "_before", None))


class Clipping:
    """Loops that call PyTorch's function, Trainer's among them, get zeepo's for the module, and PyTorch's for others."""

    def __init__(self, own: set[nn.Parameter], trained: set[nn.Parameter], clip: Callable[[float], torch.Tensor]) -> None:
        def by_zeepo(original: Callable[..., Any]) -> Callable[..., Any]:
            def clip_grad_norm_(
                parameters: Tensors, max_norm: float, norm_type: float = 2.0, *others: Any, **more: Any
            ) -> torch.Tensor:
                listed = _listed(parameters)
                given = set(listed)
                if not given & own:
                    return original(listed, max_norm, norm_type, *others, **more)
                if not trained <= given or given - own:
                    raise Error("clip_grad_norm_: zeepo clips all parameters of its module together; give all of them")
                if norm_type != 2:
                    raise Error(f"clip_grad_norm_: norm_type={norm_type}: zeepo clips by the norm of 2")
                return clip(float(max_norm))

            return clip_grad_norm_

        def refused(original: Callable[..., Any]) -> Callable[..., Any]:
            def refuse(parameters: Tensors, *others: Any, **more: Any) -> Any:
                listed = _listed(parameters)
                if set(listed) & own:
                    raise Error(f"{name}: zeepo clips by the norm: clip_grad_norm_, or zeepo.init(clip=)")
                return original(listed, *others, **more)

            name = original.__name__.lstrip("_")
            return refuse

        self._replaced = [
            _Replaced("clip_grad_norm_", by_zeepo),
            _Replaced("clip_grad_value_", refused),
            _Replaced("_clip_grads_with_norm_", refused),
        ]

    def remove(self) -> None:
        for replaced in self._replaced:
            replaced.remove()
