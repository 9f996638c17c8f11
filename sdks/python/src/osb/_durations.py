"""Durations as callers give them and as the protocol writes them."""

from __future__ import annotations

from datetime import timedelta
from typing import Union

Seconds = Union[float, timedelta]


def seconds(value: Seconds) -> float:
    """A duration in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def milliseconds(value: Seconds) -> int:
    """A wait as the protocol writes it; at least one, because 0 is forever."""
    return max(1, round(seconds(value) * 1000))
