"""verifying a ledger as `pamspec verify` does, against the same SELECT and SHA-256 over the same bytes."""

import hashlib
import time

import asyncpg

from pamspec_cli import workers
from pamspec_cli.bench.create_inprocess import writing
from pamspec_cli.bench.environment import Environment
from pamspec_cli.bench.figures import Figure, Measured, at_least, in_turns
from pamspec_cli.bench.scopes import create_scopes
from pamspec_cli.commands.verify import check_scope
from pamspec_common.postgres import scoped
from pamspec_common.verification import pages, walk

WRITE_SECONDS = 8.0
"""How long creates are written that are then verified."""


async def entries(environment: Environment) -> Figure:
    """Entries per second of one scope, each with a version and its content."""
    async with writing(environment) as writer:
        scope_id, scope_key = next(iter((await create_scopes(environment, writer.service, "verify", 1)).items()))
        await writer.creates_per_second([scope_id], WRITE_SECONDS)
    connection = await asyncpg.connect(environment.database_url)
    try:
        await connection.execute("VACUUM (ANALYZE)")
        with workers.runner(environment.database_url, workers.default_jobs()) as runner:
            verified, hashed = await _measure(connection, scope_id, scope_key, runner)
    finally:
        await connection.close()
    note = "entries with a version each; floor: the same SELECT alone, and SHA-256 over the same bytes"
    return at_least("verify.entries", verified, "entries/s", hashed, 0.7, or_value=50_000, note=note)


async def _measure(
    connection: "asyncpg.Connection[asyncpg.Record]", scope_id: str, scope_key: int, runner: walk.Runner | None
) -> tuple[Measured, Measured]:
    async def product() -> float:
        started = time.perf_counter()
        check = await check_scope(connection, scope_id, scope_key, runner=runner)
        if check.problems or check.versions != check.trust.last_seq:
            raise RuntimeError(f"{check.versions} versions, {check.problems[:3]}")
        return check.entries / (time.perf_counter() - started)

    async def floor() -> float:
        return await _read_and_hash(connection, scope_key)

    await product()
    await floor()
    return await in_turns(product, floor)


async def _read_and_hash(connection: "asyncpg.Connection[asyncpg.Record]", scope_key: int) -> float:
    """Rows per second that are read as a verification reads them, and hashed once, with nothing compared."""
    at = 0
    started = time.perf_counter()
    async with scoped(connection, [scope_key]):
        trust = await pages.trust(connection, scope_key)
        if trust is None:
            raise RuntimeError("the scope is gone")
        while at < trust.last_seq:
            rows = await connection.fetch(
                pages.PAGE_SQL, scope_key, at, trust.last_seq, walk.PAGE_ROWS, walk.PAGE_BYTES
            )
            for row in rows:
                for part in (row["event"], row["metadata"], row["content"], row["private"]):
                    hashlib.sha256(part).digest()
            at = rows[-1]["sequence"]
    return at / (time.perf_counter() - started)
