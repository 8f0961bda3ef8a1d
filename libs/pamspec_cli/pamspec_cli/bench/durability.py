"""What makes the figures honest: every server writes through to the disk, as it does in production.

Invariant: no figure is measured when one of these settings is weakened.
"""

from dataclasses import dataclass

import aiohttp
import asyncpg

REQUIRED = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


class Weakened(Exception):
    """A setting that guards data is weaker than the product's default; the message names it."""


@dataclass(frozen=True)
class Durability:
    """The settings as the servers report them."""

    settings: dict[str, str]

    def line(self) -> str:
        """All of them on one line."""
        return ", ".join(f"{name} = {value}" for name, value in self.settings.items())


async def check(database_url: str, monitor_url: str) -> Durability:
    """Read the settings; Weakened when one is not what it must be."""
    settings = await _postgres(database_url)
    settings["sync_interval"] = await _sync_interval(monitor_url)
    weak = [name for name, wanted in REQUIRED.items() if settings[name] != wanted]
    if settings["sync_interval"] != "always":
        weak.append("sync_interval")
    if weak:
        shown = ", ".join(f"{name} = {settings[name]}" for name in weak)
        raise Weakened(f"nothing is measured on weakened servers: {shown}")
    return Durability(settings)


async def _postgres(database_url: str) -> dict[str, str]:
    connection = await asyncpg.connect(database_url)
    try:
        return {name: str(await connection.fetchval(f"SHOW {name}")) for name in REQUIRED}
    finally:
        await connection.close()


async def _sync_interval(monitor_url: str) -> str:
    """`always`, or the seconds between two writes of the stream to the disk."""
    timeout = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{monitor_url}/jsz?config=1") as answer:
        config = (await answer.json(content_type=None)).get("config", {})
    if config.get("sync_always"):
        return "always"
    return f"{config.get('sync_interval', 0) / 1e9:g} s"
