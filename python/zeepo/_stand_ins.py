"""Functions of an optimizer and of modules, for as long as zeepo's stand in their place."""

from __future__ import annotations

import functools
import types
from typing import Any, Callable, Mapping

import torch
from torch import nn

from ._engine import Error
from ._own_steps import OwnSteps


class StandIns:
    """Of one optimizer: what it had itself, a scheduler's count of steps among it, is put back."""

    def __init__(self, optimizer: torch.optim.Optimizer, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._optimizer = optimizer
        self._before = {name: optimizer.__dict__.get(name) for name in functions}
        for name, function in functions.items():
            setattr(optimizer, name, types.MethodType(function, optimizer))

    def remove(self) -> None:
        for name, before in self._before.items():
            if before is None:
                self._optimizer.__dict__.pop(name, None)
            else:
                setattr(self._optimizer, name, before)


class DroppedGradients:
    """model.zero_grad(), of zeepo's module or of one around it, drops what optimizer.zero_grad() does."""

    def __init__(
        self,
        own: set[nn.Parameter],
        trained: set[nn.Parameter],
        steps: OwnSteps,
        drop: Callable[[bool], None],
    ) -> None:
        original = nn.Module.zero_grad
        self._before: Any = original

        @functools.wraps(original)
        def zero_grad(module: nn.Module, set_to_none: bool = True) -> None:
            theirs = own.intersection(module.parameters())
            if theirs and trained <= theirs:
                drop(set_to_none)
            elif steps.any_of(theirs):
                raise Error(
                    f"{type(module).__name__}.zero_grad(): zeepo drops the gradients of its module together: call "
                    "optimizer.zero_grad(), or leave this out"
                )
            original(module, set_to_none)

        nn.Module.zero_grad = zero_grad  # type: ignore[method-assign]

    def remove(self) -> None:
        nn.Module.zero_grad = self._before  # type: ignore[method-assign]
