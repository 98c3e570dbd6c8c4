"""Run under mpirun: trains at every stage and prints, from rank 0, what became of the weights.

Two ranks leave a checkpoint, which another number of ranks goes on from.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Iterable

import torch
from models import ByInput, Plain, Tied, WithBuffers, WithUnused, batch, loss_of, make
from runs import OPTIMIZERS

import zeepo

STEPS, BATCHES = 3, 6  # of a step, over all ranks


def train(kind: type, optimizer: str = "adamw", **options: Any) -> dict[str, Any]:
    model = make(kind, seed=1 if int(os.environ.get("OMPI_COMM_WORLD_RANK", "0")) == 0 else 2)  # rank 0's is taken
    opt = OPTIMIZERS[optimizer](model.parameters())
    zeepo.init(model, opt, **options)
    rank, ranks = zeepo.rank(), zeepo.world_size()
    micro_steps = BATCHES // ranks
    for step in range(STEPS):
        for micro_step in range(micro_steps):
            x, y = batch(kind, BATCHES * step + micro_step * ranks + rank, rows=2)
            (loss_of(model, x, y) / micro_steps).backward()
        opt.step()
        opt.zero_grad()
    report = zeepo.report()
    zeepo.close()
    own = report["ranks"][rank]["peak_bytes"]["device"]
    weights = [round(w.double().sum().item(), 5) for w in model.state_dict().values()]
    return dict(hash=report["weights_hash"], weights=weights, optimizer=own["optimizer"], params=own["params"])


def pass_on(directory: Path, ranks: int) -> dict[str, Any]:
    """What is in the checkpoint of two ranks, as these ranks have it."""
    model = make(WithBuffers, seed=1 if ranks == 2 else 2)
    opt = OPTIMIZERS["adamw"](model.parameters())
    zeepo.init(model, opt, stage=ranks)
    if ranks == 2:
        for number in range(3):
            loss_of(model, *batch(WithBuffers, number)).backward()
            opt.step()
        zeepo.save(directory)
    else:
        zeepo.load(directory)
    loaded = zeepo.report()["weights_hash"]
    with torch.no_grad():
        seen = loss_of(model.eval(), *batch(WithBuffers, 9)).item()  # by the buffers
    model.train()
    loss_of(model, *batch(WithBuffers, 3)).backward()
    opt.step()
    zeepo.close()
    weights = [round(w.double().sum().item(), 5) for w in model.parameters()]
    return dict(loaded=loaded, seen=seen, weights=weights)


def overflow_on_the_last() -> dict[str, Any]:
    """Of a float16 module, one rank's gradients: all ranks leave the step out."""
    model = make(Plain).half()
    opt = OPTIMIZERS["sgd"](model.parameters())
    zeepo.init(model, opt, stage=2, initial_scale_power=10)
    before = zeepo.report()["weights_hash"]
    for bad in (zeepo.rank() == zeepo.world_size() - 1, False):
        x, y = batch(Plain, zeepo.rank())
        loss = torch.nn.functional.cross_entropy(model(x.half()).float(), y)
        (loss * (float("inf") if bad else 1)).backward()
        opt.step()
    report = zeepo.report()
    zeepo.close()
    return {name: report[name] for name in ("loss_scale", "skipped_steps", "steps")} | {
        "stepped": report["weights_hash"] != before
    }


def main() -> None:
    directory = sys.argv[1]
    ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    settings: dict[str, dict[str, Any]] = {f"stage {stage}": dict(stage=stage) for stage in range(4)}
    settings["in host memory"] = dict(stage=2, offload_optimizer="host")
    settings["streamed"] = dict(
        stage=3, offload_param="host", offload_optimizer="nvme", nvme_path=directory, prefetch="1KiB"
    )
    settings["in files"] = dict(stage=3, offload_param="nvme", nvme_path=directory)
    settings["half in host memory"] = dict(stage=2, offload_param="host=0.5", offload_optimizer="host=0.5")

    def train_in(kind: type, names: Iterable[str], optimizer: str = "adamw") -> dict[str, Any]:
        return {name: train(kind, optimizer, grad_accum=BATCHES // ranks, **settings[name]) for name in names}

    results = {
        "Plain": train_in(Plain, settings),
        "Tied": train_in(Tied, ["stage 0", "stage 1", "stage 2", "stage 3", "streamed"]),
        "WithUnused": train_in(WithUnused, ["stage 0", "stage 2", "stage 3", "streamed"]),
        # Which head has a gradient is known to all ranks together.
        "ByInput": train_in(ByInput, ["stage 0"]),
        # Adam would not tell the sum of the ranks' gradients from their mean.
        "SGD": train_in(Plain, ["stage 0", "stage 3"], "sgd"),
    }
    results["overflow"] = overflow_on_the_last()
    results["saved"] = pass_on(Path(directory) / "saved", ranks)
    if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
        print(json.dumps(results))


if __name__ == "__main__":
    main()
