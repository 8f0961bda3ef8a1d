"""Whether this version and a database fit: what it must have, and from which version on it may be used.

Each service's migrations are numbered, and a version of the product knows the newest number of each. A database that
lacks one of them is not migrated. One that has more is used all the same, so that the version before goes on during an
upgrade, until a migration takes away what that version needs: such a migration begins with `-- floor: NNNN`, the
number of its own source that a version must know.

Invariant: no connection is lent that could meet tables of another shape than the code was written for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import asyncpg

from pamspec_common.errors import ServiceUnavailable

FILE = "schema.json"
"""The newest migration of each source, in an installed package; in a checkout the folders say it themselves."""
_FLOOR = re.compile(r"^-- floor: (\d{4})$", re.MULTILINE)

STATE_SQL = """
SELECT source, max(left(name, 4)::integer) AS newest, coalesce(max(floor), 0) AS floor
FROM public.pamspec_migration GROUP BY source
"""


class State(NamedTuple):
    """What a database says of one source: its newest migration, and the one that a version must know."""

    newest: int
    floor: int


def floor_of(text: str) -> int | None:
    """The number that a version must know to use a database with this migration; None where any goes on working."""
    found = _FLOOR.search(text)
    return int(found[1]) if found else None


def in_checkout(root: Path) -> dict[str, int]:
    """The newest migration of each source, as the folders of a checkout have them."""
    folders = sorted((root / "services").glob("*/pamspec_*/migrations"))
    return {folder.parents[1].name: max(int(path.name[:4]) for path in folder.glob("*.sql")) for folder in folders}


@cache
def known() -> Mapping[str, int]:
    """The newest migration of each source that this version knows."""
    here = Path(__file__).resolve().parents
    numbers = in_checkout(here[3]) if len(here) > 3 else {}
    if not numbers:
        numbers = json.loads(resources.files(__package__).joinpath(FILE).read_bytes())
    return numbers


def misfit(knows: Mapping[str, int], found: Mapping[str, State]) -> str | None:
    """Why a version must not use a database, and what to do about it; None when it may."""
    for source, number in knows.items():
        newest = found[source].newest if source in found else 0
        if newest < number:
            return (
                f"the database is not migrated: of {source} it has {newest:04}, this version needs {number:04}; "
                "run  pamspec migrate  of this version"
            )
    for source, state in found.items():
        if state.floor > knows.get(source, 0):
            return (
                f"the database is too new: of {source} it needs a version that knows {state.floor:04}, "
                f"this one knows {knows.get(source, 0):04}; run the newer version"
            )
    return None


async def check(conn: asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]) -> None:
    """ServiceUnavailable when this version must not use the database."""
    try:
        rows = await conn.fetch(STATE_SQL)
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.InsufficientPrivilegeError):
        # Nobody has migrated it, or an older version that kept no floors.
        rows = []
    except (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError):
        raise ServiceUnavailable("The store is being migrated; try again with the same key.") from None
    if reason := misfit(known(), {row["source"]: State(row["newest"], row["floor"]) for row in rows}):
        raise ServiceUnavailable(f"The store cannot be used: {reason}.", retry_after=5)
