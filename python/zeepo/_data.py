"""`parameter.data` while the memory is zeepo's: PyTorch counts no writes through it, and lets it be set to anything.

Of zeepo's parameters it is what detach() gives: a write through it counts as any other, and is found at the step. Other
memory is refused at once.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable

import torch
from torch import nn

from ._engine import Error

_DATA: Any = torch._C.TensorBase.data  # type: ignore[attr-defined]


def memory_of(parameter: nn.Parameter) -> torch.Tensor:
    return _DATA.__get__(parameter)


def put_in(parameter: nn.Parameter, memory: torch.Tensor) -> None:
    """Sets the memory behind a parameter, whoever asks."""
    _DATA.__set__(parameter, memory)


class GuardedData:
    """torch.Tensor.data, with an eye on these parameters."""

    def __init__(self, own: Iterable[nn.Parameter], name_of: Callable[[nn.Parameter], str]) -> None:
        mine = {id(parameter): parameter for parameter in own}

        def get(tensor: Any) -> torch.Tensor:
            return tensor.detach() if id(tensor) in mine else _DATA.__get__(tensor)

        def put(tensor: Any, memory: torch.Tensor) -> None:
            if id(tensor) in mine and (memory.data_ptr(), memory.dtype) != (tensor.data_ptr(), tensor.dtype):
                raise Error(
                    f"{name_of(tensor)}: its .data was set, or the module moved or converted: its memory is zeepo's until "
                    "zeepo.close(); do that before zeepo.init()"
                )
            _DATA.__set__(tensor, memory)

        torch.Tensor.data = property(get, put)  # type: ignore[assignment]

    def remove(self) -> None:
        del torch.Tensor.data
