"""The optimizers of torch.optim that zeepo's kernels step by."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch

from ._engine import Error

# Rate, beta1, beta2, eps, momentum, decay.
Rule = tuple[float, float, float, float, float, float]
# By which neither weights nor moments change.
LEFT_ALONE: Rule = (0.0, 1.0, 1.0, 0.0, 1.0, 0.0)

_KNOWN = {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adamw"}
# What zeepo's kernels do not do, and PyTorch does where it is set.
_UNKNOWN_FLAGS = ("nesterov", "amsgrad", "maximize", "dampening", "differentiable")


def kind_of(optimizer: torch.optim.Optimizer) -> str:
    """ "sgd", "adam" or "adamw"; an Error for any other, and for what they do that zeepo does not."""
    kind = _KNOWN.get(type(optimizer))
    if kind is None:
        raise Error(
            f"init: {type(optimizer).__module__}.{type(optimizer).__qualname__} is an optimizer that "
            "zeepo does not know; "
            "use torch.optim.SGD, Adam or AdamW"
        )
    for group in optimizer.param_groups:
        check_flags(group, f"init: {type(optimizer).__name__}")
    if kind == "adam" and any(group.get("decoupled_weight_decay") for group in optimizer.param_groups):
        kind = "adamw"
    return kind


def check_flags(group: dict[str, Any], what: str) -> None:
    for flag in _UNKNOWN_FLAGS:
        if group.get(flag):
            raise Error(f"{what}({flag}={group[flag]}): zeepo steps without; leave it out")


def momentum_of(optimizer: torch.optim.Optimizer) -> float:
    """That decides how much is kept of each weight."""
    return max(float(group.get("momentum", 0.0)) for group in optimizer.param_groups)


def rule_of(group: dict[str, Any], keeps_momentum: bool) -> Rule:
    """What the group says now: schedulers change it between two steps."""
    check_flags(group, "optimizer.step(): ")
    if group.get("momentum") and not keeps_momentum:
        raise Error(
            f"optimizer.step(): momentum={group['momentum']}: it was 0 at zeepo.init(), and nothing is kept for it; give "
            "one group a momentum before"
        )
    beta1, beta2 = group.get("betas", (0.0, 0.0))
    return (
        float(group["lr"]),
        float(beta1),
        float(beta2),
        float(group.get("eps", 0.0)),
        float(group.get("momentum", 0.0)),
        float(group.get("weight_decay", 0.0)),
    )


def of_own_step(rule: Rule, kind: str, own: int, number: int) -> Rule:
    """The rule that in the step of this number does what `rule` does in the step `own`: of Adam's corrections."""
    rate, beta1, beta2, eps, momentum, decay = rule
    if kind == "sgd" or rate == 0:
        return rule
    beta1, beta2 = ctypes.c_float(beta1).value, ctypes.c_float(beta2).value  # as the engine has them
    # The engine's step is rate / (1 - beta1^n) * m / (sqrt(v / (1 - beta2^n)) + eps).
    wider = math.sqrt((1 - beta2**number) / (1 - beta2**own))
    own_rate = rate * (1 - beta1**number) / (1 - beta1**own) / wider
    return own_rate, beta1, beta2, eps / wider, momentum, decay * rate / own_rate if kind == "adamw" else decay
