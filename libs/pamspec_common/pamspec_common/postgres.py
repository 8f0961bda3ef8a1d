"""PostgreSQL: pools, transactions bound to scopes, and driver errors translated once.

Invariant: row-level security shows a transaction only the scopes whose keys it set (`pamspec.scope_keys`); a
transaction that sets none sees nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from pamspec_common import schema
from pamspec_common.errors import InvalidRequest, PamspecError, ServiceUnavailable
from pamspec_common.sealing import KeyRing, WrongKey, opening
from pamspec_common.settings import CommonSettings

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.pool.PoolConnectionProxy[asyncpg.Record] | asyncpg.Connection[asyncpg.Record]
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
    _Driver: TypeAlias = asyncpg.Connection[asyncpg.Record]
else:
    Connection = _Driver = asyncpg.Connection
    Pool = asyncpg.Pool

_log = logging.getLogger(__name__)

_UNREACHABLE = (
    asyncpg.InterfaceError,
    # What the driver says when it is used between the server's last words and the end of the connection.
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.PostgresConnectionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    ConnectionError,
    OSError,
)


KEYED_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_sort": "off",
}
"""For a pool whose every statement looks rows up by key: one plan for good, by index, whatever the statistics say.

Without a sort, `WHERE id = ... ORDER BY number DESC LIMIT 1` goes through the index that begins with the id. On a table
without statistics the one that begins with the scope looks cheaper by a hair, and it reads the whole scope.
"""


_TIMEOUTS = ("statement_timeout_ms", "lock_timeout_ms")
_SESSIONS: Mapping[str, Mapping[str, str]] = {
    "write": KEYED_PLANS,
    "subscription": KEYED_PLANS,
    "delegation": {"search_path": "delegation, public"},
    "indexing": {"search_path": "index_, public"},
}


def _bounds(settings: Mapping[str, int]) -> dict[str, str]:
    return {
        "statement_timeout": str(settings["statement_timeout_ms"]),
        "lock_timeout": str(settings["lock_timeout_ms"]),
        "idle_in_transaction_session_timeout": "30000",
        "jit": "off",
    }


def role_settings(service: str) -> dict[str, str]:
    """What a session of a service's role begins with by itself.

    The pools say the same when they connect, with the timeouts of their settings. A pooler in transaction mode takes no
    such word from its clients, so behind one it is the role that says it, with the timeouts' defaults.
    """
    fields = CommonSettings.model_fields
    return _bounds({name: fields[name].default for name in _TIMEOUTS}) | dict(_SESSIONS.get(service, {}))


class _Pooled(_Driver):
    """A connection whose farewell may find nobody: the pool closes distrusted ones in tasks that nobody awaits."""

    ring = KeyRing({})

    async def close(self, *, timeout: float | None = None) -> None:
        try:
            await super().close(timeout=timeout)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            _log.info("a connection ended without a farewell: %s", error, extra={"action": "connection_dropped"})


async def create_pool(
    settings: CommonSettings,
    application: str,
    *,
    max_size: int | None = None,
    planner: Mapping[str, str] | None = None,
    content: bool = False,
) -> Pool:
    """A pool whose connections carry the timeouts of the settings and the service's name.

    It starts even while PostgreSQL is away and reconnects by itself. PgBouncer in transaction mode may stand between
    (`deploy/pgbouncer`): nothing of a session outlives a transaction, and statements are prepared by the protocol.

    No connection is lent to a database that is not migrated, or too new for this version (`schema`): ServiceUnavailable
    says what to do. With `content` its rows open what is sealed, and no connection is lent before the keys of the
    settings were found to be those that the store was sealed with. ValueError for what is no key.
    """
    ring = settings.key_ring() if content else KeyRing({})
    size = max_size or settings.pool_size
    return await asyncpg.create_pool(
        settings.database_url.get_secret_value(),
        min_size=0,
        max_size=size,
        max_inactive_connection_lifetime=300.0,
        timeout=5.0,
        command_timeout=settings.statement_timeout_ms / 1000 + 5,
        reset=_keep,
        connection_class=type("_Pooled", (_Pooled,), {"ring": ring}),
        record_class=opening(ring),
        init=_checked if content else schema.check,
        server_settings={
            "application_name": f"pamspec-{application}",
            **_bounds({name: getattr(settings, name) for name in _TIMEOUTS}),
            **(planner or {}),
        },
    )


KNOWN_KEYS_SQL = "SELECT kid, proof FROM core.key_encryption_key"


def ring_of(conn: Connection) -> KeyRing:
    """The key-encryption keys of the pool that a connection comes from; none of any other connection."""
    ring: KeyRing = getattr(conn, "ring", _Pooled.ring)
    return ring


async def _checked(conn: Connection) -> None:
    """The store fits this version, and the keys are those that it knows."""
    await schema.check(conn)
    try:
        ring_of(conn).check({row["kid"]: row["proof"] for row in await conn.fetch(KNOWN_KEYS_SQL)})
    except WrongKey as error:
        raise ServiceUnavailable(f"The store cannot be used: {error}.") from None


async def close_pool(pool: Pool | None, timeout_s: float = 5.0) -> None:
    """Close a pool once its connections are back, or cut them after the time; None is fine."""
    if pool is None:
        return
    try:
        async with asyncio.timeout(timeout_s):
            await pool.close()
    except TimeoutError:
        pool.terminate()


async def _keep(conn: Connection) -> None:
    """Leave a returned connection as it is.

    The driver has rolled back what was open. Nothing else outlives a transaction here, since settings are LOCAL and
    there are neither listeners nor session locks; the statement that the driver would send costs a round trip.
    """


@asynccontextmanager
async def connection(pool: Pool, wait_ms: int) -> AsyncIterator[Connection]:
    """A connection, or ServiceUnavailable when none is free or the server is away; driver errors are translated."""
    try:
        conn = await pool.acquire(timeout=wait_ms / 1000)
    except TimeoutError:
        raise ServiceUnavailable("All connections to the store are busy; try again shortly.") from None
    except _UNREACHABLE as error:
        raise translated(error) from error
    try:
        yield conn
    except _UNREACHABLE as error:
        await distrust(pool)
        raise translated(error) from error
    except asyncpg.PostgresError as error:
        raise translated(error) from error
    finally:
        await _give_back(pool, conn)


async def distrust(pool: Pool) -> None:
    """Lend none of the pool's present connections again: what ended one has probably ended the others too."""
    with suppress(asyncpg.InterfaceError):
        await pool.expire_connections()


async def _give_back(pool: Pool, conn: asyncpg.pool.PoolConnectionProxy[asyncpg.Record]) -> None:
    """Return a connection; one that broke meanwhile is closed by the pool, and what was done over it stays done."""
    try:
        await asyncio.shield(pool.release(conn, timeout=5.0))
    except _UNREACHABLE as error:
        _log.info("a connection broke: %s", error, extra={"action": "connection_dropped"})


async def begin(conn: Connection, scope_keys: Iterable[int], *, read_only: bool = False) -> None:
    """Begin a transaction that sees these scopes, in one round trip."""
    keys = ",".join(str(int(key)) for key in scope_keys)
    mode = " ISOLATION LEVEL REPEATABLE READ READ ONLY" if read_only else ""
    await conn.execute(f"BEGIN{mode}; SET LOCAL pamspec.scope_keys = '{{{keys}}}'")


SHOW_SCOPES_SQL = "SELECT set_config('pamspec.scope_keys', $1, true)"


async def show_scopes(conn: Connection, scope_keys: Iterable[int]) -> None:
    """Let the rest of a transaction see these scopes, and no others."""
    await conn.execute(SHOW_SCOPES_SQL, "{" + ",".join(str(int(key)) for key in scope_keys) + "}")


SHOW_TENANT_SQL = "SELECT set_config('pamspec.tenant_id', $1, true)"
"""Lets the rest of the transaction read what belongs to a whole tenant: its roles, rules and record."""


@asynccontextmanager
async def scoped(conn: Connection, scope_keys: Iterable[int], *, read_only: bool = False) -> AsyncIterator[Connection]:
    """A transaction that sees these scopes: committed at the end, rolled back on an error."""
    await begin(conn, scope_keys, read_only=read_only)
    try:
        yield conn
    except BaseException:
        await rollback(conn)
        raise
    await conn.execute("COMMIT")


async def rollback(conn: Connection) -> None:
    """End a transaction that failed; a connection that broke has nothing to end, and its first error is not hidden."""
    try:
        if not conn.is_closed():
            await asyncio.shield(conn.execute("ROLLBACK"))
    except (*_UNREACHABLE, asyncpg.PostgresError) as error:
        _log.info("not rolled back: %s", error, extra={"action": "connection_dropped"})


def translated(error: BaseException) -> PamspecError:
    """The error of the tree that a driver error stands for; an unknown one stays what it is."""
    if isinstance(error, PamspecError):
        return error
    if isinstance(error, asyncpg.QueryCanceledError):
        return InvalidRequest("The request would scan too much and was stopped; narrow its filters.")
    if isinstance(error, asyncpg.LockNotAvailableError | asyncpg.DeadlockDetectedError):
        return ServiceUnavailable("The scope is busy; try again with the same key.")
    if isinstance(error, _UNREACHABLE):
        return ServiceUnavailable("The store does not answer; try again with the same key.")
    if isinstance(error, asyncpg.DiskFullError | asyncpg.OutOfMemoryError):
        return ServiceUnavailable("The store is out of space; the operator must act.", retry_after=30)
    raise error
