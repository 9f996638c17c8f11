"""How a pool stands."""

from __future__ import annotations

from typing import NamedTuple


class PoolStatus(NamedTuple):
    """`idle` are ready, `warming` are being made, `max_idle` are to be ready; `is_degraded` says that the
    last attempts to make one failed."""

    idle: int
    warming: int
    max_idle: int
    is_degraded: bool
