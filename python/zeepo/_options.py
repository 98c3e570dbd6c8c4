"""Options of `zeepo train`, given as keywords."""

from __future__ import annotations

from typing import Any, Mapping


def text_of(value: Any) -> str:
    """The text that the command line would have for the value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={text_of(part)}" for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(text_of(part) for part in value)
    return str(value)


def texts_of(options: Mapping[str, Any]) -> dict[str, str]:
    """`{"grad_accum": 2}` as `{"--grad-accum": "2"}`; those that are None are left out."""
    return {
        "--" + name.replace("_", "-"): text_of(value)
        for name, value in options.items()
        if value is not None and value is not False
    }
