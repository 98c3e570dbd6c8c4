"""Run under mpirun: trains at every stage and prints, from rank 0, what became of the weights."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from models import Plain, Tied, batch, loss_of, make

import zeepo

STEPS, BATCHES = 3, 6  # of a step, over all ranks


def train(kind: type, **options: Any) -> dict[str, Any]:
    model = make(kind, seed=1 if int(os.environ.get("OMPI_COMM_WORLD_RANK", "0")) == 0 else 2)  # rank 0's is taken
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
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


def main() -> None:
    directory = sys.argv[1]
    ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    settings: dict[str, dict[str, Any]] = {f"stage {stage}": dict(stage=stage) for stage in range(4)}
    settings["in host memory"] = dict(stage=2, offload_optimizer="host")
    settings["streamed"] = dict(
        stage=3, offload_param="host", offload_optimizer="nvme", nvme_path=directory, prefetch="1KiB"
    )
    results = {
        kind.__name__: {name: train(kind, grad_accum=BATCHES // ranks, **options) for name, options in settings.items()}
        for kind in (Plain, Tied)
    }
    if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
        print(json.dumps(results))


if __name__ == "__main__":
    main()
