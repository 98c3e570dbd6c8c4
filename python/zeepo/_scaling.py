"""Loss scales: zeepo's own of a float16 module, and a GradScaler's.

A float16 module's loss is multiplied where autograd begins, in torch.autograd.backward, which loss.backward() calls: the
loop stays as it is. The engine divides its gradients again when it steps; what else the pass gives a gradient to, the
input or a parameter of another module, is divided before autograd adds it up.
"""

from __future__ import annotations

import contextlib
import functools
import math
from typing import Any, Callable, Iterable, Iterator, Sequence

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler

from ._engine import Error
from ._fetching import in_backward


class LossScaling:
    """torch.autograd.backward of a float16 module: begins with the engine's loss scale."""

    def __init__(self, own: set[nn.Parameter], scale: Callable[[], float]) -> None:
        self._own = own
        self._scale = scale
        self._factor = 1.0  # that the pass under way began with
        self._unscaled_leaves: set[torch.Tensor] = set()  # of that pass, and of those within it
        original = torch.autograd.backward
        self._before: Any = original

        @functools.wraps(original)
        def backward(tensors: Any, grad_tensors: Any = None, *others: Any, **more: Any) -> None:
            roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            nested = in_backward()  # torch's checkpointing with use_reentrant=True
            leaves, reaches = self._look(roots, nested)
            if not nested and not reaches:
                return original(tensors, grad_tensors, *others, **more)
            with self._unscaled(leaves, self._factor if nested else self._scale()):
                if nested:
                    return original(tensors, grad_tensors, *others, **more)
                starts = _scaled(roots, grad_tensors, self._factor)
                return original(roots, starts, *others, **more)

        torch.autograd.backward = backward

    def remove(self) -> None:
        torch.autograd.backward = self._before

    def check(self, name: str) -> None:
        """A gradient has come: of a loss that was scaled, or that autograd was given in another way."""
        if self._factor == 1 and self._scale() != 1:
            raise Error(
                f"backward: {name}: the loss of a float16 module was not scaled: call loss.backward() or "
                "torch.autograd.backward(), looked up since zeepo.init()"
            )

    @contextlib.contextmanager
    def _unscaled(self, leaves: list[torch.Tensor], factor: float) -> Iterator[None]:
        """These get their gradients without the factor, which is that of the pass meanwhile."""
        before, self._factor = self._factor, factor
        new = [leaf for leaf in leaves if leaf not in self._unscaled_leaves]
        self._unscaled_leaves.update(new)
        hooks = [leaf.register_hook(lambda gradient: gradient / factor) for leaf in new]
        try:
            yield
        finally:
            self._factor = before
            self._unscaled_leaves.difference_update(new)
            for hook in hooks:
                hook.remove()

    def _look(self, roots: Sequence[torch.Tensor], nested: bool) -> tuple[list[torch.Tensor], bool]:
        """The leaves of the graph that are not the module's; and whether the module's may have gradients from it.

        A node written in Python may run a pass of its own over what the graph does not show. In such a pass the inputs
        are leaves, whose gradients go on in the pass around it: there only parameters are others'.
        """
        leaves: list[torch.Tensor] = []
        reaches = False
        seen: set[Any] = set()
        left = [root.grad_fn for root in roots if root.grad_fn is not None]
        while left:
            node = left.pop()
            if node in seen:
                continue
            seen.add(node)
            if type(node).__name__ == "AccumulateGrad":
                leaf = node.variable
                if leaf in self._own:
                    reaches = True
                elif not nested or isinstance(leaf, nn.Parameter):
                    leaves.append(leaf)
            elif isinstance(node, torch.autograd.function.BackwardCFunction):
                reaches = True
            left.extend(following for following, _ in node.next_functions if following is not None)
        return leaves, reaches


def _scaled(roots: Sequence[torch.Tensor], starts: Any, factor: float) -> list[Any]:
    """What a pass begins with; None, which PyTorch refuses, where it would have to be given."""
    if starts is None or isinstance(starts, torch.Tensor):
        starts = [starts] * len(roots)
    return [
        start * factor if start is not None else torch.ones_like(root) * factor if root.numel() == 1 else None
        for root, start in zip(roots, starts, strict=True)
    ]


class Unscaling:
    """A GradScaler's own work on the gradients of zeepo's optimizer: the engine divides them, and looks at them."""

    def __init__(self, optimizer: torch.optim.Optimizer, unscale: Callable[[float], float], device: torch.device) -> None:
        self._optimizer = optimizer
        self._scales_itself = optimizer.__dict__.get("_step_supports_amp_scaling")
        optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]  # that of PyTorch's kernels would
        original = GradScaler._unscale_grads_
        self._before: Any = original

        @functools.wraps(original)
        def _unscale_grads_(
            scaler: GradScaler, of: torch.optim.Optimizer, inv_scale: torch.Tensor, *others: Any
        ) -> dict[torch.device, torch.Tensor]:
            if of is not optimizer:
                return original(scaler, of, inv_scale, *others)
            norm = unscale(1 / inv_scale.item())
            return {device: torch.tensor(0.0 if math.isfinite(norm) else 1.0, device=device)}

        GradScaler._unscale_grads_ = _unscale_grads_  # type: ignore[method-assign]

    def remove(self) -> None:
        GradScaler._unscale_grads_ = self._before  # type: ignore[method-assign]
        del self._optimizer._step_supports_amp_scaling  # type: ignore[attr-defined]
        if self._scales_itself is not None:
            self._optimizer._step_supports_amp_scaling = self._scales_itself  # type: ignore[attr-defined]
