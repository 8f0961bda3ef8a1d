"""Settings of the door, which the gateway reads (PAMSPEC_AMP_...)."""

from __future__ import annotations

from typing import NamedTuple


class Settings(NamedTuple):
    """What the door needs to know."""

    scope_id: str
    """Where the cells of each tenant are."""
    development: bool = False
    """Whether requests without a key are let in."""
    embedding_space: str | None = None
    """The space by which searches compare; words where there is none."""
    interval_s: int = 1
    """How often the lifecycle engine looks for what is due."""
