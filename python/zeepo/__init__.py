"""zeepo: trains and runs PyTorch modules larger than the memory at hand.

    import zeepo

    model, optimizer = MyModel(), torch.optim.AdamW(model.parameters(), lr=1e-4)
    zeepo.init(model, optimizer, stage=3, offload_optimizer="host")
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    zeepo.close()

The loop stays as it is. Parameters keep their addresses; only the memory behind them comes and goes.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping

import torch
from torch import nn

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 4):
    raise ImportError(f"zeepo needs PyTorch 2.4 or newer, and this is {torch.__version__}: pip install -U torch")

from . import _launch
from ._attached import Attached, check_module, device_of, without_wrapper
from ._engine import Error, Job, finish_ranks
from ._optimizers import kind_of
from ._options import file_of, texts_of
from ._weights import Init, read_weights

__all__ = [
    "Error",
    "Init",
    "accumulate",
    "clip_grad_norm_",
    "close",
    "device",
    "export",
    "init",
    "load",
    "load_weights",
    "rank",
    "report",
    "save",
    "summon",
    "world_size",
]

Error.__doc__ = """What cannot be, with the values and what to do instead."""

_open: Attached | None = None
_ends_all_ranks = False


def init(
    model: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    config: str | Path | Mapping[str, Any] | None = None,
    stage: int | None = None,
    offload_optimizer: str | None = None,
    offload_param: str | None = None,
    offload_activations: str | None = None,
    nvme_path: str | Path | Iterable[str | Path] | None = None,
    memory: Mapping[str, Any] | str | None = None,
    placement: str = "given",
    clip: float | None = None,
    grad_accum: int | None = None,
    zero_offload: bool = False,
    num_gpus: int | None = None,
    shard_data: bool = True,
    debug: bool = False,
    **options: Any,
) -> None:
    """Hands the module's parameters, gradients and optimizer state to zeepo, until close().

    model, optimizer: what is trained; torch.optim's SGD, Adam or AdamW. Without an optimizer the module is for
        inference. Without both, the one optimizer of the program is taken, and the module that has its parameters.
    stage: what is cut over the ranks: 0 nothing, 1 the optimizer's state, 2 gradients too, 3 parameters too.
    offload_optimizer, offload_param: where they live between uses: "none", "host", "nvme", or shares: "host=0.5".
    offload_activations: where autograd's saved tensors are between the passes: "none", "host", "nvme".
    config: DeepSpeed's JSON, as a file or as a dict; what is given beside it wins.
    memory: budgets of a rank, {"device": "12GiB", "host": "40GiB"}: of what zeepo holds; PyTorch's part is its own.
    placement: "auto" chooses what lives where within these budgets, the fastest tiers first.
    zero_offload: stage 2 with the optimizer in host memory.
    num_gpus: how many ranks; started alone, the script is started again as so many. Without it ranks are those of
        mpirun, of srun or, on one machine, of torchrun.
    shard_data: with several ranks, every DataLoader that exists now yields each rank its part.
    debug: a parameter that is read and was not fetched is an Error.

    Other options are those of `zeepo train`, by the same names: prefetch="64MiB", moments="bf16", dtype of the module.
    Of a float16 module, whose loss is scaled, those of DeepSpeed's section fp16: initial_scale_power=16, loss_scale=1024
    for one that stays, and so on.
    """
    global _open
    if _open is not None:
        raise Error("init: zeepo has a module already; call zeepo.close() first")
    if zero_offload:
        stage = 2 if stage is None else stage
        offload_optimizer = offload_optimizer or "host"
    _launch.check_ranks(num_gpus)
    if model is None:
        model, optimizer = _launch.find_model(optimizer)
    model = without_wrapper(model)
    check_module(model)
    device = device_of(model).type
    if options.pop("device", device) != device:
        raise Error(f"init: device: the module is on {device}; call model.to() before")
    if optimizer is not None:
        kind_of(optimizer)
    texts = texts_of(
        dict(
            stage=stage,
            offload_optimizer=offload_optimizer,
            offload_param=offload_param,
            offload_activations=offload_activations,
            nvme_path=nvme_path,
            memory=memory,
            placement=placement if placement != "given" else None,
            device=device,
            clip=clip,
            grad_accum=grad_accum,
            **options,
        )
    )
    with file_of(config) as file:
        job = Job(texts, file)
    if job.size > 1:
        _end_all_ranks_on_failure(job)
    try:
        if job.rank == 0:
            for note in job.notes:
                print(f"zeepo: {note}", file=sys.stderr)
        if job.size > 1:
            _launch.share_start(job, model)
        attached = Attached(job, model, optimizer, debug)
    except BaseException as error:
        if job.size > 1:
            job.abort(f"{error}")
        with contextlib.suppress(Error):
            job.close()
        raise
    if job.size > 1 and shard_data:
        _launch.shard_loaders(job.rank, job.size)
    _open = attached


def _end_all_ranks_on_failure(job: Job) -> None:
    """An exception that nobody catches ends the job on all ranks: none waits for this one."""
    global _ends_all_ranks
    if _ends_all_ranks:
        return
    _ends_all_ranks = True
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        before(kind, error, trace)
        sys.stderr.flush()
        sys.stdout.flush()
        job.abort(f"{kind.__name__}: {error}")

    sys.excepthook = hook
    atexit.register(finish_ranks)


def _attached(what: str) -> Attached:
    if _open is None:
        raise Error(f"{what}: zeepo has no module; call zeepo.init(model, optimizer) first")
    return _open


def close() -> None:
    """Ends what init() began: the module has its full weights in tensors of its own, on every rank."""
    global _open
    attached = _attached("close")
    _open = None
    try:
        attached.detach()
    finally:
        attached.job.close()


def rank() -> int:
    """This process's number among the ranks."""
    return _attached("rank").job.rank


def world_size() -> int:
    """How many ranks there are."""
    return _attached("world_size").job.size


def device() -> torch.device:
    """Where this rank computes."""
    return _attached("device").device


def report() -> dict[str, Any]:
    """The summary of `zeepo train` as a dict: params, world_size, weights_hash, ranks. Every rank calls it.

    Of training also steps, skipped_steps and loss_scale, that of the next step.
    """
    return _attached("report").report()


def save(directory: str | Path) -> Path:
    """Writes a checkpoint, directory/step-N, that any number of ranks can go on from. Every rank calls it.

    Buffers that are part of the module's state, BatchNorm's statistics among them, are rank 0's.
    """
    return _attached("save").save(directory)


def load(directory: str | Path) -> Path:
    """Goes on from a checkpoint, or from the newest of a directory of them. Every rank calls it."""
    return _attached("load").load(directory)


def export(directory: str | Path) -> Path:
    """Writes the weights and buffers as model.safetensors. Every rank calls it."""
    return _attached("export").export(directory)


def load_weights(model: nn.Module, directory: str | Path) -> None:
    """Reads the module's parameters and buffers from the safetensors files of a directory, tensor by tensor.

    Those made under Init() become views of the files, where the dtype is the same: zeepo.init() reads them from there.
    Before zeepo.init().
    """
    if _open is not None and _open.has_any_of(model):
        raise Error("load_weights: the weights are zeepo's until zeepo.close(); read them before zeepo.init()")
    read_weights(model, directory)


@contextlib.contextmanager
def summon(model: nn.Module) -> Iterator[nn.Module]:
    """Full weights for a moment, to be read: `with zeepo.summon(model): ...`. Every rank calls it."""
    attached = _attached("summon")
    if without_wrapper(model) is not attached.model:
        raise Error("summon: this is not the module that zeepo.init() was given")
    with attached.summon():
        yield model


@contextlib.contextmanager
def accumulate() -> Iterator[None]:
    """For all but the last of several backward passes a step: `with zeepo.accumulate(): loss.backward()`."""
    with _attached("accumulate").accumulate():
        yield


def clip_grad_norm_(parameters: Any = None, max_norm: float | None = None) -> torch.Tensor:
    """The norm of all gradients, over all ranks; the next step clips them to max_norm. In place of torch's function."""
    if isinstance(parameters, (int, float)) and max_norm is None:
        max_norm = parameters
    if max_norm is None:
        raise Error("clip_grad_norm_: give max_norm")
    return _attached("clip_grad_norm_").clip_grad_norm(max_norm)
