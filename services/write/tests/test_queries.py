"""Every statement fits the migrated schema, as the role of the service."""

from __future__ import annotations

import importlib
import pkgutil

import asyncpg
import pytest

from pamspec_cli.servers.databases import Database
from pamspec_write import queries

STATEMENTS = {
    f"{name}[{of}]" if of else name: statement
    for module in pkgutil.iter_modules(queries.__path__, f"{queries.__name__}.")
    for name, value in vars(importlib.import_module(module.name)).items()
    if name.endswith("_SQL")
    for of, statement in (value.items() if isinstance(value, dict) else [("", value)])
}


@pytest.mark.parametrize("name", STATEMENTS)
async def test_each_statement_can_be_prepared(database: Database, name: str) -> None:
    conn = await asyncpg.connect(database.role("write"))
    await conn.prepare(STATEMENTS[name])
    await conn.close()


def test_there_are_statements() -> None:
    assert {"PREFETCH_SQL", "LOCK_SKIP_SQL", "LOCK_WAIT_SQL", "ERASE_SQL", "WRITE_SQL"} <= set(STATEMENTS)
