"""Copies of a module whose memory is zeepo's, by copy.deepcopy, pickle or torch.save.

They would call zeepo's hooks, and have what stands at an address where no weight is now: they are refused.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ._engine import Error


def _refuse(_: Any) -> Any:
    raise Error(
        "the module cannot be copied or pickled until zeepo.close(): copy its state_dict(), which has the full weights, "
        "or save the model by zeepo.export(directory)"
    )


class RefusedCopies:
    def __init__(self, model: nn.Module) -> None:
        self._modules = list(model.modules())
        for module in self._modules:
            module.__dict__["__reduce_ex__"] = _refuse

    def remove(self) -> None:
        for module in self._modules:
            module.__dict__.pop("__reduce_ex__", None)
