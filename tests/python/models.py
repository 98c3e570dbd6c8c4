"""Small modules that the tests train, awkward ones among them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, CLASSES, VOCABULARY = 16, 5, 23


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Plain(nn.Module):
    """A list of blocks between two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Linear(8, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.outward = nn.Linear(WIDTH, CLASSES)

    def run_block(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return block(x)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inward(x)
        for block in self.blocks:
            x = self.run_block(block, x)
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outward(self.features(x))


class Tied(nn.Module):
    """The head is the embedding: one parameter in two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class CalledTwice(Plain):
    """Every block runs twice, one after all others."""

    def features(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inward(x)
        for block in [*self.blocks, *self.blocks]:
            x = block(x)
        return x


class Borrowing(Tied):
    """The embedding's parameter is read by the model, without a module of its own that runs."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return F.linear(x, self.embed.weight)


@dataclass
class Output:
    logits: torch.Tensor
    features: list[torch.Tensor]


class InDataclasses(Plain):
    def forward(self, x: torch.Tensor) -> Output:
        features = self.features(x)
        return Output(self.outward(features), [features])


class _ViewBlock(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).view(x.shape)


class ViewsChangedInPlace(Plain):
    """A block returns a view, which is then changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_ViewBlock() for _ in range(4))

    def run_block(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        y = block(x)
        y += x
        return y


class Checkpointed(Plain):
    def run_block(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, x, use_reentrant=False)


class CheckpointedReentrant(Plain):
    def run_block(self, block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, x, use_reentrant=True)


class CheckpointedTogether(Plain):
    """All blocks in one checkpointed region."""

    def features(self, x: torch.Tensor) -> torch.Tensor:
        def run(x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
            return x

        return checkpoint(run, self.inward(x), use_reentrant=False)


class WithBuffers(nn.Module):
    """BatchNorm's running statistics, and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(24, WIDTH))
        self.outward = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outward(self.body(x[:, None, :]))


class WithUnused(Plain):
    """A layer that no pass uses."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(WIDTH, WIDTH)


class OwnParameters(Plain):
    """The model itself has parameters, which it reads before and after its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outward(self.features(x) * self.scale + self.shift)


class FrozenTrunk(Plain):
    def __init__(self) -> None:
        super().__init__()
        for block in self.blocks:
            block.requires_grad_(False)


class ListedParameters(Plain):
    """Parameters in lists and dicts, which are modules that never run."""

    def __init__(self) -> None:
        super().__init__()
        self.mixing = nn.ParameterList(nn.Parameter(torch.randn(8, 8) / 3) for _ in range(3))
        self.shifts = nn.ParameterDict({"first": nn.Parameter(torch.zeros(8))})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.mixing:
            x = torch.tanh(x @ weight)
        return super().forward(x + self.shifts["first"])


class ByInput(Plain):
    """Some batches go through another head: each head has a gradient in some steps alone."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        head = self.other if x[0, 0] > 1 else self.outward
        return head(self.features(x))


OF_TOKENS = (Tied, Borrowing)
AWKWARD = (
    Plain,
    Tied,
    CalledTwice,
    Borrowing,
    InDataclasses,
    ViewsChangedInPlace,
    Checkpointed,
    CheckpointedReentrant,
    CheckpointedTogether,
    WithBuffers,
    WithUnused,
    OwnParameters,
    FrozenTrunk,
    ListedParameters,
)


def make(kind: type[nn.Module], seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return kind()


def batch(kind: type[nn.Module], number: int, rows: int = 6, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 + number)
    if kind in OF_TOKENS:
        tokens = torch.randint(VOCABULARY, (rows, 7), generator=generator)
        return tokens[:, :-1].to(device), tokens[:, 1:].to(device)
    x, y = torch.randn(rows, 8, generator=generator), torch.randint(CLASSES, (rows,), generator=generator)
    return x.to(device), y.to(device)


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = model(x)
    logits = out.logits if isinstance(out, Output) else out
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
