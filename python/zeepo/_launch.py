"""What init() finds out by itself: the ranks, the module, the data loaders."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import shutil
import sys
from typing import Any, Iterable, Iterator

import torch
from torch import nn

from . import _torchrun
from ._engine import Error, Job, launched

_STARTED = "ZEEPO_STARTED_RANKS"


def take_own_gpu() -> int:
    """Of several ranks on a machine with several GPUs each sees its own alone, as cuda:0. Returns how many there are.

    When the package is imported: once PyTorch has begun on a GPU it is too late, and left as it is.
    """
    gpus = torch.cuda.device_count()
    ranks, local_rank = launched()
    if ranks > 1 and gpus > 1 and not torch.cuda.is_initialized():
        given = os.environ.get("CUDA_VISIBLE_DEVICES")
        visible = given.split(",") if given else [str(gpu) for gpu in range(gpus)]
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[local_rank % gpus]
    return gpus


_gpus = take_own_gpu()


def check_ranks(num_gpus: int | None) -> None:
    """Starts the script again as `num_gpus` ranks where nobody has started them, or as many as torchrun has."""
    torchruns = _torchrun.processes()
    ranks = torchruns if torchruns > 1 else launched()[0]
    if num_gpus is not None:
        if num_gpus < 1:
            raise Error(f"init: num_gpus={num_gpus}: must be at least 1")
        if 0 < _gpus < num_gpus:
            raise Error(f"init: num_gpus={num_gpus}: this machine has {_gpus}")
        if num_gpus != ranks and (ranks > 1 or _STARTED in os.environ):
            raise Error(
                f"init: num_gpus={num_gpus}, and {ranks} ranks were started; leave num_gpus out, or give that number"
            )
    if torchruns > 1:
        _torchrun.leave_to_first()
        _start_again(torchruns, "torchrun")
    elif num_gpus is not None and num_gpus != ranks:
        _start_again(num_gpus, f"num_gpus={num_gpus}")


def _start_again(ranks: int, why: str) -> None:
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        raise Error(f"init: {why}: mpirun, which starts the ranks, is not there; install OpenMPI")
    script = getattr(sys.modules["__main__"], "__file__", None)  # a notebook has none
    if script is None or not sys.argv or not os.path.isfile(sys.argv[0]):
        raise Error(
            f"init: {why}: only a script can be started again; make this program one, or start it with mpirun -n {ranks}"
        )
    environment = _torchrun.without_variables(dict(os.environ, **{_STARTED: str(ranks)}))
    if os.geteuid() == 0:
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    sys.stdout.flush()
    sys.stderr.flush()
    command = [mpirun, "--bind-to", "none", "--oversubscribe", "-n", str(ranks), sys.executable, *sys.orig_argv[1:]]
    os.execve(mpirun, command, environment)


def find_model(optimizer: torch.optim.Optimizer | None) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The one optimizer of the program, and the largest module around its parameters."""
    if optimizer is None:
        gc.collect()  # what only cycles hold any more is none
        found = _living(torch.optim.Optimizer)
        if len(found) != 1:
            raise Error(f"init: there are {len(found)} optimizers in this program; call zeepo.init(model, optimizer)")
        optimizer = found[0]
    stepped = {p for group in optimizer.param_groups for p in group["params"]}
    having = [m for m in _living(nn.Module) if stepped <= set(m.parameters())]
    inner = {child for m in having for child in m.modules() if child is not m}
    outermost = [m for m in having if m not in inner]
    if len(outermost) != 1:
        raise Error(
            f"init: there are {len(outermost)} modules with the optimizer's parameters; "
            "call zeepo.init(model, optimizer)"
        )
    return outermost[0], optimizer


def _living(kind: type) -> list[Any]:
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]


def share_start(job: Job, model: nn.Module) -> None:
    """Rank 0's weights, buffers and random state become all ranks': they may have been drawn without a seed."""

    def share(tensor: torch.Tensor) -> torch.Tensor:
        flat = tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().clone()
        job.broadcast(flat.data_ptr(), flat.numel())
        return flat.view(tensor.dtype).view(tensor.shape)

    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.numel() == 0:
                continue
            first = share(tensor.reshape(-1)).view(tensor.shape)
            # What is there already is not written: it may be a view of a file.
            if job.rank > 0 and not torch.equal(first, tensor.cpu()):
                tensor.copy_(first)
    torch.set_rng_state(share(torch.get_rng_state()))


def _part_of(batches: Iterable[Any], rank: int, ranks: int) -> Iterator[Any]:
    """The batches rank, rank + ranks, ...; a last round that not all ranks would have is left out."""
    own = None
    for number, batch in enumerate(batches):
        if number % ranks == rank:
            own = batch
        if number % ranks == ranks - 1:
            yield own


class _Draws:
    """PyTorch's random numbers for the order of batches: alike on all ranks, whatever else each of them draws.

    A rank draws more than another one where its images are cut at random, or its texts are longer. These go on from
    what all ranks start from: a loop that draws nothing else sees the order of one rank.
    """

    def __init__(self) -> None:
        self._state = torch.get_rng_state()

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        own = torch.get_rng_state()
        torch.set_rng_state(self._state)
        try:
            yield
        finally:
            self._state = torch.get_rng_state()
            torch.set_rng_state(own)


class _Part:
    """A sampler of batches that has this rank's: the others' are not even read."""

    def __init__(self, loader: torch.utils.data.DataLoader, rank: int, ranks: int, draws: _Draws) -> None:
        self._batches: Any = loader.batch_sampler
        self._seeded = loader.generator is not None
        self._rank, self._ranks, self._draws = rank, ranks, draws

    def __getattr__(self, name: str) -> Any:  # batch_size, sampler, drop_last
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._batches, name)

    def __len__(self) -> int:
        return len(self._batches) // self._ranks

    def __iter__(self) -> Iterator[Any]:
        with self._draws.in_force():  # samplers draw when they are asked for the first batch
            if not self._seeded:
                torch.empty((), dtype=torch.int64).random_()  # as the loader has done before, from this rank's own
            batches = iter(self._batches)
            first = list(itertools.islice(batches, 1))
        yield from _part_of(itertools.chain(first, batches), self._rank, self._ranks)


class _PartLoader(torch.utils.data.DataLoader):
    """A loader whose batches come from an iterator, and can only be passed over."""

    _zeepo_part: tuple[int, int]
    _zeepo_draws: _Draws

    def __iter__(self) -> Any:
        with self._zeepo_draws.in_force():
            batches = super().__iter__()
        return _part_of(batches, *self._zeepo_part)

    def __len__(self) -> int:
        return super().__len__() // self._zeepo_part[1]


def shard_loaders(rank: int, ranks: int) -> None:
    """Every DataLoader yields this rank's batches from now on."""
    draws = _Draws()
    for loader in _living(torch.utils.data.DataLoader):
        if isinstance(loader.batch_sampler, _Part) or isinstance(loader, _PartLoader):
            continue
        iterated = isinstance(loader.dataset, torch.utils.data.IterableDataset)
        if loader.batch_sampler is not None and not iterated:
            object.__setattr__(loader, "batch_sampler", _Part(loader, rank, ranks, draws))
        else:
            object.__setattr__(loader, "_zeepo_part", (rank, ranks))
            object.__setattr__(loader, "_zeepo_draws", draws)
            loader.__class__ = type("PartLoader", (_PartLoader, type(loader)), {})
