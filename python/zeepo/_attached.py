"""A module and its optimizer, attached to zeepo's engine."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Iterator
from weakref import WeakValueDictionary

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_pre_hook

from . import _safetensors
from ._clipping import Clipping
from ._copies import RefusedCopies
from ._data import GuardedData, memory_of, put_in
from ._engine import Error, Job
from ._fetching import Fetching
from ._memory import floats_at, stream_of, tensor_at
from ._optimizers import kind_of, momentum_of, rule_of
from ._own_steps import OwnSteps
from ._scaling import LossScaling, Unscaling
from ._stand_ins import DroppedGradients, StandIns
from ._units import Place, Units, cut_into_units

_READ_AT_ONCE = 1 << 22  # elements
_OWN_STEPS = "zeepo.own_steps"  # beside the buffers of a checkpoint


def without_wrapper(model: Any) -> Any:
    """The module that torch.compile() was given, whose parameters have their own names; any other as it is."""
    return model._orig_mod if type(model).__name__ == "OptimizedModule" else model


def check_module(model: nn.Module) -> None:
    """What a module must have, before anything is begun for it."""
    if not isinstance(model, nn.Module):
        raise Error(f"init: {type(model).__name__} is not a torch.nn.Module")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise Error("init: the module is of torch.jit, which takes no hooks; give the module that it was made of")
    device_of(model)
    _dtype_of(model)


def _dtype_of(model: nn.Module) -> torch.dtype:
    dtypes = {p.dtype for p in model.parameters()}
    if not dtypes:
        raise Error(f"init: {type(model).__name__} has no parameters; give the module that has them")
    if len(dtypes) != 1:
        listed = ", ".join(sorted(str(dtype) for dtype in dtypes))
        raise Error(f"init: parameters of one dtype are needed, and the module has {listed}; call model.to(dtype)")
    return dtypes.pop()


def device_of(model: nn.Module) -> torch.device:
    """Where all parameters are: the CPU, or one GPU."""
    found: torch.device | None = None
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise Error(f"init: {name} has no shape before the module was called: call it once, with a batch")
        device = parameter.device
        if device.type == "meta":
            raise Error(
                f"init: {name} has no memory: give it values before, by zeepo.load_weights(model, directory), or make the "
                "module under zeepo.Init(directory), which keeps fresh ones in files"
            )
        if device.type not in ("cpu", "cuda"):
            raise Error(f"init: {name} is on {device}: must be on the CPU or on a GPU of CUDA; call model.to()")
        if found is not None and device != found:
            raise Error(f"init: {name} is on {device}, and others are on {found}; call model.to({str(found)!r})")
        found = device
    return found or torch.device("cpu")


def persistent_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """Those that are part of the module's state, by name."""
    return {
        f"{prefix}.{name}" if prefix else name: buffer
        for prefix, module in model.named_modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and name not in module._non_persistent_buffers_set
    }


class Attached:
    """The hooks, the parameters at their addresses, and what stands in for the optimizer's functions."""

    def __init__(self, job: Job, model: nn.Module, optimizer: torch.optim.Optimizer | None, debug: bool) -> None:
        self.job = job
        self.model = model
        self.optimizer = optimizer
        self.device = device_of(model)
        self._dtype = _dtype_of(model)
        self._stream = stream_of(self.device)
        self._groups = self._find_groups()
        self.units: Units = cut_into_units(model)
        self._trained = {parameter for parameter in self.units.places if self._is_trained(parameter)}
        self._numbers = {parameter: number for number, parameter in enumerate(self.units.places)}
        self._own_steps = OwnSteps(
            job,
            kind_of(optimizer) if optimizer is not None else "",
            {p: self._groups[p] if p in self._trained else None for p in self.units.places},
        )
        self._removable: list[Any] = []
        self._addresses: dict[nn.Parameter, int] = {}
        self._versions: dict[nn.Parameter, int] = {}
        self._scaling: LossScaling | None = None
        self._skipped_steps = 0
        self._steps = False  # the optimizer, by zeepo
        self._attach_engine(debug)
        try:
            self._move_in()
            self._put_hooks(debug)
        except BaseException:
            if job.size == 1:  # several ranks end
                self.detach()
            raise

    # Setting up.

    def _put_hooks(self, debug: bool) -> None:
        own = set(self.units.places)
        self._fetching = Fetching(self.job, self.model, self.units, self.device, debug)
        self._removable.append(self._fetching)
        self._removable.append(GuardedData(self.units.places, lambda parameter: self._place(parameter).name))
        self._removable.append(RefusedCopies(self.model))
        self._take_gradients()
        self._check_loads()
        self._refuse_others()
        if self.optimizer is None:
            return
        self._removable.append(StandIns(self.optimizer, dict(step=self._make_step(), zero_grad=self._make_zero_grad())))
        self._removable.append(DroppedGradients(own, self._trained, self._own_steps, self.drop_gradients))
        self._watch_optimizer_state(self.optimizer)
        self._removable.append(Clipping(own, self._trained, self.clip_grad_norm))
        self._removable.append(Unscaling(self.optimizer, self._unscale, self.device))
        if self._dtype == torch.float16:
            self._scaling = LossScaling(own, self.job.loss_scale)
            self._removable.append(self._scaling)

    def _find_groups(self) -> dict[nn.Parameter, int]:
        """Of each parameter that is stepped, the number of its group."""
        if self.optimizer is None:
            return {}
        own = set(self.model.parameters())
        groups: dict[nn.Parameter, int] = {}
        for number, group in enumerate(self.optimizer.param_groups):
            for parameter in group["params"]:
                if parameter not in own:
                    raise Error(
                        f"init: the optimizer has a parameter of shape {tuple(parameter.shape)} that the "
                        "module has not; "
                        "give the module that has all of them"
                    )
                groups[parameter] = number
        return groups

    def _attach_engine(self, debug: bool) -> None:
        given = [
            (name, [self._described(p) for p in parameters])
            for name, parameters in zip(self.units.names, self.units.parameters)
        ]
        optimizer = kind_of(self.optimizer) if self.optimizer is not None else ""
        momentum = momentum_of(self.optimizer) if self.optimizer is not None else 0.0
        gpu = self.device.index if self.device.type == "cuda" else -1
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # what PyTorch keeps for later is not free for zeepo
        self._keeps_momentum = momentum > 0
        self.job.attach(given, str(self._dtype).removeprefix("torch."), optimizer, momentum, gpu, debug)

    def _described(self, parameter: nn.Parameter) -> tuple[str, list[int], bool, int]:
        """To the engine each parameter is a group: which has a gradient is known at the step."""
        name = self._place(parameter).name
        return name, list(parameter.shape), self._is_trained(parameter), self._numbers[parameter]

    def _place(self, parameter: nn.Parameter) -> Place:
        return self.units.places[parameter]

    def _is_trained(self, parameter: nn.Parameter) -> bool:
        return parameter in self._groups and parameter.requires_grad

    def _move_in(self) -> None:
        """The weights go into the engine; the tensors from now on show them where they are fetched to."""
        by_name = {place.name: p for p, place in self.units.places.items()}
        flat = {name: p.detach().reshape(-1) for name, p in by_name.items()}

        def fill(name: str, begin: int, address: int, count: int) -> None:
            floats_at(address, count).copy_(flat[name][begin : begin + count])

        self._begin()
        self.job.load(fill)
        flat.clear()
        for parameter, place in self.units.places.items():
            address = self.job.address(place.unit, place.index)
            parameter.data = tensor_at(address, parameter.shape, self._dtype, self.device)
            parameter.grad = None
            self._addresses[parameter] = address
            self._versions[parameter] = parameter._version
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # the memory that the weights had

    def _begin(self) -> None:
        """What the engine is asked for next is done in the order of PyTorch's stream."""
        self.job.follow(self._stream())

    def _take_gradients(self) -> None:
        for parameter, place in self.units.places.items():
            if parameter in self._trained:
                hook = self._gradient_hook(place)
                self._removable.append(parameter.register_post_accumulate_grad_hook(hook))

    def _gradient_hook(self, place: Place) -> Callable[[Any], None]:
        job, dtype, stream = self.job, self._dtype, self._stream
        usual = torch.cuda.default_stream(self.device).cuda_stream if self.device.type == "cuda" else 0

        def hook(parameter: Any) -> None:
            gradient = parameter.grad
            parameter.grad = None
            if gradient is None:
                return
            self._own_steps.has(parameter)
            if self._scaling is not None:
                self._scaling.check(place.name)
            if gradient.layout != torch.strided:
                gradient = gradient.to_dense()
            gradient = gradient.to(dtype).contiguous()
            now = stream()
            if now != usual:  # PyTorch may have made the gradient on another one
                gradient.record_stream(torch.cuda.current_stream(gradient.device))
            job.follow(now)
            job.add_gradient(place.unit, place.index, gradient.data_ptr())

        return hook

    def _check_loads(self) -> None:
        def refuse(*_: Any) -> None:
            raise Error(
                "load_state_dict: the weights are zeepo's until zeepo.close(); load them before zeepo.init(), or use "
                "zeepo.load(directory) for a checkpoint"
            )

        named = [parameter for _, parameter in self.model.named_parameters(remove_duplicate=False)]
        tied = {parameter for parameter, times in Counter(named).items() if times > 1}
        copies: WeakValueDictionary[nn.Parameter, torch.Tensor] = WeakValueDictionary()

        def whole(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
            for name, parameter in module._parameters.items():
                if parameter not in self.units.places or prefix + name not in state:
                    continue
                copy = copies.get(parameter)
                if copy is None or not any(value is copy for value in state.values()):
                    copy = self.weight(parameter)
                if parameter in tied:  # and stays so
                    copies[parameter] = copy
                state[prefix + name] = copy

        for module in self.model.modules():  # any of them may be asked
            if any(True for _ in module.parameters()):
                self._removable.append(module._register_load_state_dict_pre_hook(refuse))
                self._removable.append(module._register_state_dict_hook(whole))

    def _make_step(self) -> Callable[..., Any]:
        attached = self

        @torch.optim.Optimizer.profile_hook_step  # the hooks of the user's on the step
        def step_with_hooks(self: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
            """Steps by zeepo's engine."""
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            attached.step()
            return loss

        @functools.wraps(step_with_hooks)
        def step(self: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
            attached._steps = True
            try:
                loss = step_with_hooks(self, closure)
            finally:
                attached._steps = False
            self._opt_called = True  # type: ignore[attr-defined]  # what schedulers look at
            return loss

        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # schedulers find their count kept
        return step

    def _make_zero_grad(self) -> Callable[..., None]:
        def zero_grad(_: torch.optim.Optimizer, set_to_none: bool = True) -> None:
            """Drops gradients that no step has taken."""
            self.drop_gradients(set_to_none)

        return zero_grad

    def _watch_optimizer_state(self, optimizer: torch.optim.Optimizer) -> None:
        """The moments are the engine's: whoever means to keep or set those of PyTorch is told."""
        if optimizer.state:
            self._say("the optimizer has state of PyTorch's steps; zeepo begins with none, and goes on from zeepo.load()")
        told = False

        def tell(_: torch.optim.Optimizer) -> None:
            nonlocal told
            if not told:
                self._say("optimizer.state_dict() has rates, and no moments: zeepo.save(directory) keeps them")
            told = True

        def refuse(_: torch.optim.Optimizer, state: dict[str, Any]) -> None:
            if state.get("state"):
                raise Error(
                    "optimizer.load_state_dict: the moments are zeepo's until zeepo.close(); use zeepo.load(directory), "
                    "or load the rates alone: dict(state, state={})"
                )

        self._removable.append(optimizer.register_state_dict_pre_hook(tell))
        self._removable.append(optimizer.register_load_state_dict_pre_hook(refuse))

    def _say(self, text: str) -> None:
        if self.job.rank == 0:
            print(f"zeepo: {text}", file=sys.stderr)

    def _refuse_others(self) -> None:
        """Gradients are zeepo's: a step that is not finds none, and changes what zeepo does not see."""

        def refuse(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if optimizer is self.optimizer and self._steps:
                return
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter in self.units.places:
                        raise Error(
                            f"{type(optimizer).__name__}.step(): {self._place(parameter).name} is zeepo's until "
                            "zeepo.close(), and only the step() of the optimizer that zeepo.init() was given, looked "
                            "up since then, steps it"
                        )

        self._removable.append(register_optimizer_step_pre_hook(refuse))

    # The loop.

    def step(self) -> None:
        assert self.optimizer is not None
        self._check_parameters()
        self._check_groups()
        self._fetching.forget()
        of_group = [rule_of(group, self._keeps_momentum) for group in self.optimizer.param_groups]
        before = self.job.steps_taken()
        self._begin()
        rules = self._own_steps.rules(of_group, before + 1)
        skipped, scale = self.job.step(rules)
        self._own_steps.end(taken=self.job.steps_taken() > before)
        if not skipped:
            return
        self._skipped_steps += 1
        why = f"overflow at loss scale {scale:g}" if self._scaling is not None else "a gradient that is not finite"
        self._say(f"step {self.job.steps_taken() + 1} skipped: {why}")

    def drop_gradients(self, set_to_none: bool = True) -> None:
        self._begin()
        self.job.drop_gradients()
        self._own_steps.drop(set_to_none)
        self._fetching.forget()
        for parameter in self.model.parameters():
            parameter.grad = None

    def clip_grad_norm(self, max_norm: float) -> torch.Tensor:
        self._fetching.forget()
        self._begin()
        return torch.tensor(self.job.clip_to(float(max_norm)), device=self.device)

    def _unscale(self, scale: float) -> float:
        if self._scaling is not None:
            raise Error("GradScaler: zeepo scales the loss of a float16 module itself; leave the GradScaler out")
        self._fetching.forget()
        self._begin()
        return self.job.unscale(scale)

    def _check_parameters(self) -> None:
        for parameter, address in self._addresses.items():
            if parameter.data_ptr() != address:
                raise Error(
                    f"{self._place(parameter).name} has other memory than zeepo gave it: its .data was "
                    "set, or the module "
                    "was moved or converted; do that before zeepo.init()"
                )
            if parameter._version != self._versions[parameter]:
                raise Error(
                    f"{self._place(parameter).name} was written to between two steps, which zeepo's "
                    "copies of it do not "
                    "see; change weights before zeepo.init()"
                )

    def _check_groups(self) -> None:
        assert self.optimizer is not None
        stepped = [p for group in self.optimizer.param_groups for p in group["params"]]
        if len(stepped) != len(self._groups):
            raise Error("optimizer.step(): the optimizer has other parameters than at zeepo.init(); add them before")
        for parameter in stepped:
            if parameter not in self.units.places:  # it has no elements
                continue
            if parameter.grad is None:
                continue
            name = self._place(parameter).name
            if parameter in self._trained:
                raise Error(f"optimizer.step(): the .grad of {name} was set; zeepo takes gradients as autograd makes them")
            raise Error(f"optimizer.step(): {name} was frozen at zeepo.init() and has a gradient; unfreeze it before")

    def has_any_of(self, model: nn.Module) -> bool:
        return any(parameter in self.units.places for parameter in model.parameters())

    @contextlib.contextmanager
    def accumulate(self) -> Iterator[None]:
        self.job.set_several_passes(True)
        try:
            yield
        finally:
            self.job.set_several_passes(False)

    # Weights as a whole.

    def weight(self, parameter: nn.Parameter) -> torch.Tensor:
        """A copy of the full weight. Every rank calls it."""
        full = torch.empty(parameter.numel(), dtype=torch.float32)
        name = self._place(parameter).name
        self._begin()
        for begin in range(0, full.numel(), _READ_AT_ONCE):
            count = min(_READ_AT_ONCE, full.numel() - begin)
            self.job.read(name, begin, full.data_ptr() + 4 * begin, count)
        return full.view(parameter.shape).to(self.device, self._dtype)

    @contextlib.contextmanager
    def summon(self) -> Iterator[None]:
        self._check_parameters()
        if not self._weights_fit():
            raise Error("summon: the full weights do not fit in memory; zeepo.export(directory) writes them to a file")
        full = {parameter: self.weight(parameter) for parameter in self.units.places}
        fixed = {parameter: memory_of(parameter) for parameter in full}
        for parameter, weight in full.items():
            put_in(parameter, weight)
        versions = {parameter: parameter._version for parameter in full}
        try:
            yield
            for parameter in full:
                if parameter._version != versions[parameter]:
                    raise Error(f"summon: {self._place(parameter).name} was changed: summoned weights are for reading")
        finally:
            for parameter, memory in fixed.items():
                put_in(parameter, memory)
                self._versions[parameter] = parameter._version

    def report(self) -> dict[str, Any]:
        self._begin()
        report = json.loads(self.job.report())
        if self.optimizer is not None:
            report["steps"] = self.job.steps_taken()
            report["skipped_steps"] = self._skipped_steps
            report["loss_scale"] = self.job.loss_scale()
        return report

    def save(self, directory: str | Path) -> Path:
        kept = persistent_buffers(self.model)
        self._begin()
        own_steps = self._own_steps.saved(self.job.steps_taken())
        if own_steps is not None:
            kept[_OWN_STEPS] = own_steps
        return Path(self.job.save(str(directory), _safetensors.to_bytes(kept) if kept else b""))

    def load(self, directory: str | Path) -> Path:
        self._fetching.forget()
        self._begin()
        path, saved = self.job.find_saved(str(directory))
        kept = dict(_safetensors.tensors_of(bytearray(saved), path)) if saved else {}
        own_steps = kept.pop(_OWN_STEPS, None)
        buffers = self._find_buffers(path, kept)
        self.job.load_saved(path)
        self._own_steps.load(own_steps, self.job.steps_taken())
        with torch.no_grad():
            for own, value in buffers:
                own.copy_(value)
        return Path(path)

    def _find_buffers(self, path: str, saved: dict[str, torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each of the module's buffers, and what it had when the checkpoint was saved."""
        own = persistent_buffers(self.model)
        for name in sorted(own.keys() ^ saved.keys()):
            has, lacks = ("the module", "the checkpoint") if name in own else ("the checkpoint", "the module")
            raise Error(f"load: {path}: {has} has a buffer {name}, and {lacks} has not")
        for name, buffer in own.items():
            if buffer.shape != saved[name].shape:
                raise Error(
                    f"load: {path}: has {name} {list(saved[name].shape)}, and the module has {list(buffer.shape)}"
                )
        return [(buffer, saved[name]) for name, buffer in own.items()]

    def export(self, directory: str | Path) -> Path:
        """The weights and buffers as model.safetensors, and the module's config.json where it has one."""
        target = Path(directory)
        if self.job.rank == 0:
            target.mkdir(parents=True, exist_ok=True)
            config = getattr(self.model, "config", None)
            if hasattr(config, "save_pretrained"):
                config.save_pretrained(target)
        file = target / "model.safetensors"
        buffers = [(n, *_safetensors.stored(b, n)) for n, b in persistent_buffers(self.model).items()]
        self._begin()
        self.job.write_weights(str(file), str(self._dtype).removeprefix("torch."), buffers)
        return file

    def detach(self) -> None:
        """The module and the optimizer as they were, with the weights as they are."""
        for hook in self._removable:
            hook.remove()
        self._removable.clear()
        left = dict.fromkeys(self._addresses)
        try:
            if self._weights_fit():
                for parameter in self._addresses:
                    parameter.data = self.weight(parameter)
                    parameter.grad = None
                    del left[parameter]
            else:
                self._say("close: the full weights do not fit in memory: the module is left without them")
        finally:
            for parameter in left:  # zeepo's memory goes
                parameter.data = torch.empty(0, dtype=self._dtype, device=self.device)
                parameter.grad = None

    def _weights_fit(self) -> bool:
        """Whether every rank has room for all of them, beside what zeepo holds."""
        needed = sum(parameter.numel() * parameter.element_size() for parameter in self._addresses)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            fit = torch.cuda.mem_get_info(self.device)[0] >= needed
        else:
            fit = self.job.has_host_room(needed)
        self._begin()
        self.job.settle()
        return self.job.any_of("01"[not fit]) == "0"
