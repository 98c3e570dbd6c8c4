"""Which parameters a step steps: those that have a gradient, as PyTorch's optimizers do.

A parameter without one keeps its weight and its moments. The engine counts the steps of the run, and Adam's corrections
are of a parameter's own steps: its rule is put so that it has them.
"""

from __future__ import annotations

from typing import Mapping, Sequence

import torch
from torch import nn

from ._engine import Job
from ._optimizers import LEFT_ALONE, Rule, of_own_step


class OwnSteps:
    def __init__(self, job: Job, kind: str, groups: Mapping[nn.Parameter, int | None]) -> None:
        """groups: of every parameter of the module, in the same order in every run; None: it is not trained."""
        self._job = job
        self._kind = kind
        self._groups = groups
        self._taken = [0] * len(groups)
        self._stepped = [False] * len(groups)  # in the step under way
        self._have: set[nn.Parameter] = set()  # a gradient that no step has taken
        self._had: set[nn.Parameter] = set()  # in the last step
        self._zeros: set[nn.Parameter] = set()  # zero_grad(set_to_none=False) has left them one

    def has(self, parameter: nn.Parameter) -> None:
        self._have.add(parameter)

    def any_of(self, parameters: set[nn.Parameter]) -> bool:
        return not self._have.isdisjoint(parameters)

    def drop(self, set_to_none: bool) -> None:
        self._zeros = set() if set_to_none else self._zeros | self._have | self._had
        self._have = set()

    def rules(self, of_group: Sequence[Rule], step: int) -> list[Rule]:
        """Of each parameter, in the step of this number, by the rule of its group; every rank calls it."""
        self._stepped = self._with_gradient()
        rules = []
        for taken, group, stepped in zip(self._taken, self._groups.values(), self._stepped, strict=True):
            rule = of_group[group] if stepped and group is not None else LEFT_ALONE
            if stepped and taken + 1 != step:
                rule = of_own_step(rule, self._kind, taken + 1, step)
            rules.append(rule)
        return rules

    def _with_gradient(self) -> list[bool]:
        have = self._have | self._zeros
        stepped = [parameter in have for parameter in self._groups]
        if self._job.size == 1:
            return stepped
        lacking = any(group is not None and p not in have for p, group in self._groups.items())
        if not self._job.is_on_any_rank(lacking):
            return stepped
        return [flag == "1" for flag in self._job.any_of("".join("01"[flag] for flag in stepped))]

    def end(self, taken: bool) -> None:
        """The step is over; one that was skipped has not been taken."""
        if taken:
            self._taken = [before + stepped for before, stepped in zip(self._taken, self._stepped, strict=True)]
        self._had, self._have = self._have, set()

    def saved(self, step: int) -> torch.Tensor | None:
        """What a checkpoint keeps after so many steps; nothing where every parameter has taken all of them."""
        of_trained = (taken for taken, group in zip(self._taken, self._groups.values()) if group is not None)
        return torch.tensor(self._taken) if any(taken != step for taken in of_trained) else None

    def load(self, saved: torch.Tensor | None, step: int) -> None:
        self._taken = [step] * len(self._taken) if saved is None else saved.tolist()
        self.drop(set_to_none=True)
        self._had = set()
