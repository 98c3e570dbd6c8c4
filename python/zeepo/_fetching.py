"""Fetching by hooks: parameters are at their addresses before anything reads them.

In the forward pass modules tell what they need before they run. In the backward pass what autograd has saved tells: a
parameter is fetched when a node asks for it, and stays for as long as the node runs. A module may read parameters of
others: the first calls of the model are watched, and what they read besides is fetched with the module from then on.
"""

from __future__ import annotations

import threading
from typing import Any, Callable

import torch
import torch.utils.checkpoint
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ._activations import Activations, Kept
from ._engine import Error, Job
from ._memory import stream_of
from ._units import Units


class _Saved:
    """A tensor that autograd has saved; of a parameter, or a view of one, with its unit.

    Without its history: the node that made it would hold itself through it.
    """

    __slots__ = ("unit", "tensor", "version")

    def __init__(self, unit: int | None, tensor: torch.Tensor) -> None:
        self.unit = unit
        self.tensor = tensor.detach()
        self.version = tensor._version

    def unchanged(self) -> torch.Tensor:
        """PyTorch looks itself only where there are no hooks."""
        if self.tensor._version != self.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"{self.tensor.type()} {list(self.tensor.shape)} is at version {self.tensor._version}; "
                f"expected version {self.version} instead"
            )
        return self.tensor


class _Saving:
    """Autograd's hooks for what it saves; also where others have hooks of theirs in force, save_on_cpu among them.

    Those would keep a view of a parameter, and nobody would fetch what it shows: parameters are zeepo's in any case. In
    torch's checkpointing its own hooks are alone, and the recomputation fetches.
    """

    def __init__(self, pack: Any, unpack: Any, is_fetched: Callable[[torch.Tensor], bool]) -> None:
        kind = torch.autograd.graph.saved_tensors_hooks
        self._hooks = kind(pack, unpack)
        self._hooks.__enter__()
        self._before: Any = kind.__enter__

        def enter(hooks: Any) -> None:
            if type(hooks).__module__ == torch.utils.checkpoint.__name__:
                return self._before(hooks)
            theirs_pack, theirs_unpack = hooks.pack_hook, hooks.unpack_hook

            def pack_either(tensor: torch.Tensor) -> Any:
                return pack(tensor) if is_fetched(tensor) else theirs_pack(tensor)

            def unpack_either(saved: Any) -> torch.Tensor:
                return unpack(saved) if isinstance(saved, _Saved) else theirs_unpack(saved)

            torch._C._autograd._push_saved_tensors_default_hooks(pack_either, unpack_either)

        kind.__enter__ = enter  # type: ignore[method-assign]

    def remove(self) -> None:
        torch.autograd.graph.saved_tensors_hooks.__enter__ = self._before  # type: ignore[method-assign]
        self._hooks.__exit__(None, None, None)


class _Needs:
    """The units that a module needs when it begins, and those that it was seen to read besides."""

    __slots__ = ("units",)

    def __init__(self, units: frozenset[int]) -> None:
        self.units = units


class _Watch(TorchDispatchMode):
    """Sees every read of a parameter before it happens."""

    def __init__(self, fetching: "Fetching") -> None:
        super().__init__()
        self._fetching = fetching

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor):
                self._fetching.see(value)
        return func(*args, **kwargs)


def _is_traced(tensor: torch.Tensor) -> bool:
    """Whether it stands for another, while something is compiled, and has no memory."""
    return isinstance(tensor, (FakeTensor, FunctionalTensor)) or torch._is_functional_tensor(tensor)


def in_backward() -> bool:
    """Whether this thread runs a backward pass."""
    return torch._C._current_graph_task_id() != -1


class Fetching:
    """The hooks of one module, and which units are there now."""

    def __init__(self, job: Job, model: nn.Module, units: Units, device: torch.device, debug: bool) -> None:
        self._job = job
        self._units = units
        self._device = device
        self._stream = stream_of(device)
        self._debug = debug
        self._comes = [not job.always_there(u) for u in range(len(units.names))]
        self._held: frozenset[int] = frozenset()
        self._node: Any = None  # of the backward pass that asked for the units that are held
        self._unit_at = {
            p.untyped_storage().data_ptr(): place.unit for p, place in units.places.items() if self._comes[place.unit]
        }
        self._removable: list[Any] = []
        self._saving: Any = None
        self._last: _Needs | None = None  # of the module that began last
        self._watched: set[tuple[bool, bool]] = set()  # kinds of calls: training or not, recorded or not
        self._watching: _Watch | None = None
        self._running = False  # a call of the whole model
        self._activations: Activations | None = None
        if job.option("--offload-activations") != "none":
            memory = {p.untyped_storage().data_ptr() for p in units.places}
            self._activations = Activations(job, device, memory, self._stream)
        for module, wanted in {model: (), **units.needs}.items():
            coming = frozenset(u for u in wanted if self._comes[u])
            # Before hooks of the user's, which may read the parameters. Of the whole model always: what it reads before
            # another module begins, as of a list of parameters, is learnt with it.
            if coming or (module is model and any(self._comes)):
                hook = self._hook_for(_Needs(coming))
                self._removable.append(module.register_forward_pre_hook(hook, prepend=True))
        root = torch.compiler.disable(self._root_begins)
        self._removable.append(model.register_forward_pre_hook(root, prepend=True))
        self._removable.append(model.register_forward_hook(torch.compiler.disable(self._root_ends), always_call=True))
        if not any(self._comes) and self._activations is None:
            return
        self._saving = _Saving(self._pack, self._unpack, self._is_fetched)
        self._thread = threading.get_ident()  # whose saved tensors are seen

    def remove(self) -> None:
        for hook in self._removable:
            hook.remove()
        self._removable.clear()
        self._stop_watching()
        if self._saving is not None:
            self._saving.remove()
            self._saving = None
        self.forget()

    def forget(self) -> None:
        """A pass is over: nothing is held any more."""
        self._held = frozenset()
        self._node = None
        if self._activations is not None:
            self._activations.forget()

    def _root_begins(self, module: nn.Module, inputs: Any) -> None:
        if in_backward():
            return
        if self._saving is not None and threading.get_ident() != self._thread:
            raise Error("the module is called in another thread than zeepo.init(): begin and train in the same one")
        self._running = True
        self._job.follow(self._stream())
        self._job.begin_call(torch.is_grad_enabled())
        if torch.is_grad_enabled():
            self._held = frozenset()  # of the micro-step before, where this call begins another one
            self._node = None
        else:
            self.forget()
        kind = (module.training, torch.is_grad_enabled())
        if any(self._comes) and self._watching is None and (self._debug or kind not in self._watched):
            self._watched.add(kind)
            self._watching = _Watch(self)
            self._watching.__enter__()

    def _root_ends(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if in_backward():
            return
        self._running = False
        self._stop_watching()
        if not torch.is_grad_enabled():
            self._job.follow(self._stream())
            self._job.end_call()
            self.forget()

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.__exit__(None, None, None)
            self._watching = None

    def see(self, tensor: torch.Tensor) -> None:
        """The tensor is read next."""
        unit = self._unit_of(tensor)
        if unit is None or unit in self._held:
            return
        if self._debug:
            raise Error(
                f"debug: a parameter of {self._units.names[unit]} is read, and was not fetched: no module "
                "that has it is "
                "running. Without debug=True it is fetched, and from then on with the module that reads it"
            )
        if self._last is not None and self._running:
            self._last.units |= {unit}
        self._want(self._held | {unit})

    def _unit_of(self, tensor: torch.Tensor) -> int | None:
        if tensor.layout != torch.strided or tensor.device.type != self._device.type:
            return None
        return self._unit_at.get(tensor.untyped_storage().data_ptr())

    def _is_fetched(self, tensor: torch.Tensor) -> bool:
        """Whether it is of a parameter that comes and goes."""
        return not _is_traced(tensor) and self._unit_of(tensor) is not None

    def _hook_for(self, needs: _Needs) -> Any:
        def hook(module: nn.Module, inputs: Any) -> None:
            self._last = needs
            self._want(needs.units)

        return torch.compiler.disable(hook)

    def _pack(self, tensor: torch.Tensor) -> Kept | _Saved:
        if _is_traced(tensor):
            return _Saved(None, tensor)
        unit = self._unit_of(tensor)
        if unit is not None and unit not in self._held:
            self.see(tensor)  # an operation saves its inputs before it reads them
        if unit is None and self._activations is not None and self._activations.takes(tensor):
            return self._activations.pack(tensor)
        return _Saved(unit, tensor)

    def _unpack(self, saved: Kept | _Saved) -> torch.Tensor:
        if isinstance(saved, Kept):
            assert self._activations is not None
            return self._activations.unpack(saved)
        if saved.unit is not None:
            self._want(frozenset((saved.unit,)))
        return saved.unchanged()

    def _want(self, wanted: frozenset[int]) -> None:
        backward = in_backward()
        node = torch._C._current_autograd_node() if backward else None
        if wanted <= self._held:
            # What a node has asked for stays until another one asks.
            if node is not self._node:
                self._node = node
            return
        if backward and node is self._node:
            wanted = wanted | self._held
        self._node = node
        self._held = wanted
        self._job.follow(self._stream())
        self._job.use(sorted(wanted), torch.is_grad_enabled() or backward, backward)

