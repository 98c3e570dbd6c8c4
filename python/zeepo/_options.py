"""Options of `zeepo train`, given as keywords; those of a float16 module's loss scale have DeepSpeed's names."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any, Iterator, Mapping

_OF_LOSS_SCALE = ("loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale")


def text_of(value: Any) -> str:
    """The text that the command line would have for the value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={text_of(part)}" for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(text_of(part) for part in value)
    return str(value)


def _key_of(name: str) -> str:
    return f"fp16.{name}" if name in _OF_LOSS_SCALE else "--" + name.replace("_", "-")


def texts_of(options: Mapping[str, Any]) -> dict[str, str]:
    """`{"grad_accum": 2}` as `{"--grad-accum": "2"}`; those that are None are left out."""
    return {
        _key_of(name): text_of(value)
        for name, value in options.items()
        if value is not None and value is not False
    }


@contextlib.contextmanager
def file_of(config: str | Path | Mapping[str, Any] | None) -> Iterator[str]:
    """DeepSpeed's file; of a dict one that is there for as long."""
    if not isinstance(config, Mapping):
        yield str(config) if config is not None else ""
        return
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "config"
        file.write_text(json.dumps(config))
        yield str(file)
