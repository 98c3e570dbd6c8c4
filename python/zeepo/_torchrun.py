"""Processes that torchrun has started: the first one becomes mpirun with as many ranks, the others wait for its end."""

from __future__ import annotations

import os
import select
import sys
from datetime import timedelta

import torch.distributed

from ._engine import Error

_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "ROLE_NAME",
    "MASTER_ADDR",
    "MASTER_PORT",
)
_TO_BE_TOLD = timedelta(minutes=30)  # how long a script may take until zeepo.init(), on the first process


def processes() -> int:
    """How many torchrun has started; 1 where there is none."""
    size = os.environ.get("WORLD_SIZE", "")
    return int(size) if "TORCHELASTIC_RUN_ID" in os.environ and size.isdigit() else 1


def without_variables(environment: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name not in _VARIABLES and not name.startswith("TORCHELASTIC_")
    }


def leave_to_first() -> None:
    """Returns in the first process alone, which is to become mpirun; the others end with it.

    They exit with 0: where the first fails, torchrun tells of it, and ends the others.
    """
    size, here = processes(), os.environ.get("LOCAL_WORLD_SIZE", "")
    if str(size) != here:
        raise Error(
            f"init: torchrun has started {size} processes, {here} of them on this machine; use mpirun for several"
        )
    if torch.distributed.is_initialized():
        raise Error(
            "init: torch.distributed was begun before; zeepo joins the ranks itself: leave init_process_group out"
        )
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        raise Error(f"init: torchrun keeps no store for its processes; start them with mpirun -n {size}")
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = torch.distributed.TCPStore(address, port, is_master=False, timeout=_TO_BE_TOLD)
    key = f"zeepo/first/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if os.environ["LOCAL_RANK"] == "0":
        store.set(key, str(os.getpid()))
        return
    _wait_for_end(int(store.get(key)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _wait_for_end(process: int) -> None:
    try:
        ended = os.pidfd_open(process)
    except ProcessLookupError:
        return
    waiting = select.poll()
    waiting.register(ended, select.POLLIN)
    waiting.poll()
