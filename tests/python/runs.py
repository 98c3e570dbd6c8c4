"""Short trainings, with zeepo and without."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import nn

import zeepo
from models import batch, loss_of, make

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "plain_sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=3e-3, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=3e-3, weight_decay=0.1),
}


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def step(model: nn.Module, opt: torch.optim.Optimizer, number: int = 0) -> None:
    loss_of(model, *batch(type(model), number)).backward()
    opt.step()
    opt.zero_grad()


def trained(parameters: Any) -> list[nn.Parameter]:
    return [p for p in parameters if p.requires_grad]


Trained = tuple[list[float], nn.Module]


def train_plain(
    kind: type[nn.Module],
    optimizer: str = "adamw",
    steps: int = 5,
    clip: float = 0,
    device: str = "cpu",
) -> Trained:
    """Losses of each step, and the module after them."""
    model = make(kind).to(device)
    opt = OPTIMIZERS[optimizer](trained(model.parameters()))
    losses = []
    for number in range(steps):
        loss = loss_of(model, *batch(kind, number, device=device))
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    return losses, model


def train(
    kind: type[nn.Module],
    optimizer: str = "adamw",
    steps: int = 5,
    model: nn.Module | None = None,
    device: str = "cpu",
    **options: Any,
) -> Trained:
    model = (model or make(kind)).to(device)
    opt = OPTIMIZERS[optimizer](trained(model.parameters()))
    zeepo.init(model, opt, **options)
    try:
        losses = []
        for number in range(steps):
            loss = loss_of(model, *batch(kind, number, device=device))
            loss.backward()
            opt.step()
            opt.zero_grad()
            losses.append(loss.item())
    finally:
        zeepo.close()
    return losses, model


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))
