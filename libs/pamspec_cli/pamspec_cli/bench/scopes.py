"""Scopes to measure in."""

import asyncio
import json

import asyncpg

from pamspec_cli.bench.environment import Environment
from pamspec_cli.development import TENANT_ID
from pamspec_common.calls import Call
from pamspec_common.peers import LocalPeer
from pamspec_common.service import Service

_AT_ONCE = 16
KEYS_SQL = "SELECT scope_id, scope_key FROM core.scope WHERE tenant_id = $1 AND scope_id = ANY ($2::text[])"


async def create_scopes(environment: Environment, write: Service, prefix: str, count: int) -> dict[str, int]:
    """That many new scopes, by id, with their internal keys."""
    names = [f"bench:{prefix}-{number}" for number in range(count)]
    peer, token = LocalPeer(write), environment.principal()
    free = asyncio.Semaphore(_AT_ONCE)

    async def create(name: str) -> None:
        async with free:
            body = json.dumps({"scope_id": name, "scope_kind": "bench"}).encode()
            answer = await peer.call(Call("create_scope", token, body))
            if answer.status not in (200, 201):
                raise RuntimeError(f"create_scope answered {answer.status}: {answer.body[:300]!r}")

    await asyncio.gather(*map(create, names))
    connection = await asyncpg.connect(environment.database_url)
    try:
        rows = await connection.fetch(KEYS_SQL, TENANT_ID, names)
    finally:
        await connection.close()
    return {row["scope_id"]: row["scope_key"] for row in rows}
