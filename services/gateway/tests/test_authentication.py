"""Keys: who gets in, for how long, and what a guesser costs."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import asyncpg
import pytest

from pamspec_cli.servers.databases import Database
from pamspec_common.errors import ServiceUnavailable, Unauthenticated
from pamspec_common.keys import is_key, new_key
from pamspec_common.peers import LocalPeer
from pamspec_common.postgres import create_pool
from pamspec_common.principal import Principal, TokenSigner
from pamspec_common.server import serving
from pamspec_common.turns import Turns
from pamspec_gateway.api_keys import ApiKeys, Guesses
from pamspec_gateway.app import build
from pamspec_gateway.authentication import Guard, Identity
from pamspec_gateway.credential_watch import CredentialWatch
from pamspec_gateway.limits.limiter import Limiter
from services.gateway.tests.behind import (
    PEPPER,
    Behind,
    Door,
    echo_service,
    gateway_settings,
    insert_key,
    refusal_of,
)


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def _status(door: Door, headers: dict[str, str]) -> tuple[int, bytes, str | None]:
    async with door.session.post(door.url + "/v1/create", data=b"{}", headers=headers) as response:
        return response.status, await response.read(), response.headers.get("WWW-Authenticate")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic dXNlcjpwYXNz"},
        {"Authorization": "Bearer pam_" + "x" * 43},
        {"Authorization": "Bearer " + "x" * 9000},
        {"Authorization": "Bearer schlüssel-mit-umlaut"},
        {"X-API-Key": "pam_unknown_unknown"},
        {"X-Pamspec-Principal": "k1.forged.forged"},
    ],
)
async def test_without_a_valid_key_nobody_gets_in(door: Door, headers: dict[str, str]) -> None:
    status, body, challenge = await _status(door, {"Content-Type": "application/json", **headers})
    assert (status, challenge) == (401, 'Bearer realm="pamspec"')
    error = refusal_of(body)
    assert (error["code"], error["retryable"]) == ("access_denied", False)
    assert door.behind.calls == []


async def test_both_headers_open(door: Door) -> None:
    for headers in ({"Authorization": f"bearer {door.key}"}, {"X-API-Key": door.key}):
        status, _, _ = await _status(door, {"Content-Type": "application/json", **headers})
        assert status == 200


async def _execute(dsn: str, sql: str, *arguments: object) -> None:
    conn = await asyncpg.connect(dsn)
    try:
        await conn.execute(sql, *arguments)
    finally:
        await conn.close()


async def _until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 30) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.02)


async def test_a_revoked_key_is_out_long_before_it_would_be_forgotten(database: Database) -> None:
    key, other = new_key(), new_key()
    await insert_key(database.dsn, key)
    await insert_key(database.dsn, other, key_id="key:2", actor="agent:b")
    echo = echo_service("echo", behind := Behind())
    peers = dict.fromkeys(("write", "query", "subscription", "delegation", "indexing"), LocalPeer(echo))
    async with (
        aiohttp.ClientSession() as session,
        serving(gateway := build(gateway_settings(database, key_cache_s=25, key_use_s=3600), peers)) as url,
    ):
        door = Door(url, key, behind, session, database.dsn, gateway)
        assert (await door.post("/v1/create"))[0] == 200
        await _execute(database.dsn, "UPDATE core.api_key SET revoked_at = clock_timestamp() WHERE key_id = 'key:1'")

        async def refused() -> bool:
            return (await door.post("/v1/create"))[0] == 401

        await _until(refused)
        second = Door(url, other, behind, session, database.dsn, gateway)
        assert (await second.post("/v1/create"))[0] == 200
        await _execute(database.dsn, "UPDATE core.api_key SET revoked_at = NULL WHERE key_id = 'key:1'")

        async def let_in() -> bool:
            return (await door.post("/v1/create"))[0] == 200

        await _until(let_in)
    stopped_with = await _column(database.dsn, "SELECT last_used_at FROM core.api_key ORDER BY key_id")
    assert None not in stopped_with, "what was used is noted when the gateway stops, at the latest"


async def _column(dsn: str, sql: str) -> list[object]:
    conn = await asyncpg.connect(dsn)
    try:
        return [row[0] for row in await conn.fetch(sql)]
    finally:
        await conn.close()


@pytest.mark.parametrize("ending", ["revoked_at = clock_timestamp()", "expires_at = clock_timestamp()"])
async def test_a_poll_under_way_ends_with_its_key(own_door: Door, ending: str) -> None:
    own_door.behind.gate = asyncio.Event()
    poll = asyncio.create_task(own_door.post("/v1/poll", {"subscription_id": "sub:1"}))
    await asyncio.wait_for(own_door.behind.started.wait(), 30)
    await _execute(own_door.dsn, f"UPDATE core.api_key SET {ending}")
    status, body, _ = await asyncio.wait_for(poll, 30)
    assert status == 401
    assert refusal_of(body)["code"] == "access_denied"
    own_door.behind.gate.set()


async def test_a_caller_is_not_remembered_by_a_look_that_began_before_a_revocation() -> None:
    looked = asyncio.Event()
    asked = 0

    class Slow:
        def accepts(self, credential: str) -> bool:
            return True

        async def identify(self, credential: str, address: str) -> Identity:
            nonlocal asked
            asked += 1
            await looked.wait()
            return Identity(Principal("tenant:a", "agent:a", "agent"), 25.0)

    guard = Guard([Slow()], TokenSigner("k1", b"k" * 32), limiter=Limiter(Turns(4, 3)))
    headers = {b"authorization": b"Bearer key"}
    admitting = asyncio.create_task(guard.admit(headers, "a"))
    while not asked:
        await asyncio.sleep(0)
    guard.forget(moved=True)
    looked.set()
    await admitting
    assert guard.remembered(headers[b"authorization"]) is None
    await guard.admit(headers, "a")
    assert guard.remembered(headers[b"authorization"]) is not None


async def test_while_nobody_can_tell_of_revocations_nothing_is_remembered(database: Database) -> None:
    clock, told = Clock(), [0, 0]

    def moved() -> None:
        told[0] += 1

    def unknown() -> None:
        told[1] += 1

    pool = await create_pool(gateway_settings(database), "gateway-test")
    watch = CredentialWatch(pool, moved, unknown, every_s=1, blind_s=1.0, wait_ms=2000, clock=clock)
    await watch.look()
    await watch.look()
    assert told == [1, 0]
    await _execute(database.dsn, "UPDATE core.credential_epoch SET epoch = epoch + 1")
    await watch.look()
    assert told == [2, 0]
    await _execute(database.dsn, "REVOKE SELECT ON core.credential_epoch FROM pamspec_gateway")
    await watch.look()
    assert told == [2, 0], "a look that fails once says nothing yet"
    clock.now += 1.5
    await watch.look()
    await watch.look()
    assert told == [2, 2]
    await _execute(database.dsn, "GRANT SELECT ON core.credential_epoch TO pamspec_gateway")
    await watch.look()
    assert told == [3, 2], "afterwards everything is looked at again"
    await pool.close()


async def test_the_use_of_keys_is_one_statement_for_all(database: Database) -> None:
    known = [new_key() for _ in range(30)]
    for number, key in enumerate(known):
        await insert_key(database.dsn, key, key_id=f"key:{number}", actor=f"agent:{number}")
    keys = await _keys(database, Clock())
    for key in known[:20]:
        await keys.identify(key, "a")
    with pytest.raises(Unauthenticated):
        await keys.identify(new_key(), "a")
    await keys.note_use()
    used = await _column(database.dsn, "SELECT last_used_at FROM core.api_key WHERE last_used_at IS NOT NULL")
    assert len(used) == 20
    await keys.note_use()
    again = await _column(database.dsn, "SELECT last_used_at FROM core.api_key WHERE last_used_at IS NOT NULL")
    assert sorted(map(str, again)) == sorted(map(str, used))


async def test_an_expired_key_is_out(own_door: Door) -> None:
    await _execute(own_door.dsn, "UPDATE core.api_key SET expires_at = clock_timestamp() - interval '1 second'")
    assert (await own_door.post("/v1/create"))[0] == 401


async def test_a_database_that_is_away_is_not_a_wrong_key(database: Database) -> None:
    settings = gateway_settings(database, database_url="postgresql://nobody@127.0.0.1:9/none")
    peers = dict.fromkeys(
        ("write", "query", "subscription", "delegation", "indexing"), LocalPeer(echo_service("echo", Behind()))
    )
    async with aiohttp.ClientSession() as session, serving(gateway := build(settings, peers)) as url:
        door = Door(url, new_key(), Behind(), session, database.dsn, gateway)
        status, body, headers = await door.post("/v1/create")
        assert (status, headers["Retry-After"]) == (503, "1")
        assert refusal_of(body)["code"] == "service_unavailable"


async def _keys(database: Database, clock: Clock, guesses: Guesses | None = None) -> ApiKeys:
    pool = await create_pool(gateway_settings(database), "gateway-test")
    return ApiKeys(pool, PEPPER.encode(), guesses or Guesses(10, 50, clock), lifetime_s=2.0, wait_ms=2000, clock=clock)


async def test_many_lookups_at_once_are_one_statement(database: Database) -> None:
    known = [new_key() for _ in range(40)]
    for number, key in enumerate(known):
        await insert_key(database.dsn, key, key_id=f"key:{number}", actor=f"agent:{number}")
    keys = await _keys(database, Clock())
    identities = await asyncio.gather(*(keys.identify(key, "a") for key in known for _ in range(5)))
    assert {identity.principal.actor_id for identity in identities} == {f"agent:{number}" for number in range(40)}
    assert keys.statements <= 2


async def test_a_guesser_is_put_off_and_nobody_else_is(database: Database) -> None:
    clock, key = Clock(), new_key()
    await insert_key(database.dsn, key)
    keys = await _keys(database, clock, Guesses(per_s=1, burst=5, clock=clock))
    await keys.identify(key, "guesser")
    for _ in range(5):
        with pytest.raises(Unauthenticated):
            await keys.identify(new_key(), "guesser")
    before = keys.statements
    for _ in range(100):
        with pytest.raises(ServiceUnavailable) as raised:
            await keys.identify(new_key(), "guesser")
        assert raised.value.http_status == 429
    assert keys.statements == before
    assert (await keys.identify(key, "guesser")).principal.actor_id == "agent:a"
    with pytest.raises(Unauthenticated):
        await keys.identify(new_key(), "somebody else")
    clock.now += 1
    with pytest.raises(Unauthenticated):
        await keys.identify(new_key(), "guesser")


async def test_a_wrong_key_is_remembered(database: Database) -> None:
    clock, key = Clock(), new_key()
    keys = await _keys(database, clock)
    for _ in range(10):
        with pytest.raises(Unauthenticated):
            await keys.identify(key, "a")
    assert keys.statements == 1
    await insert_key(database.dsn, key)
    clock.now += 3
    assert (await keys.identify(key, "a")).principal.actor_id == "agent:a"


@pytest.mark.parametrize("jump_s", [3600, -3600])
async def test_a_remembered_caller_is_signed_anew_after_the_machine_s_clock_has_jumped(jump_s: int) -> None:
    class Known:
        def accepts(self, credential: str) -> bool:
            return True

        async def identify(self, credential: str, address: str) -> Identity:
            return Identity(Principal("tenant:a", "agent:a", "agent"), 25.0)

    steady, wall = Clock(), Clock()
    guard = Guard([Known()], TokenSigner("k1", b"k" * 32, clock=wall), steady, wall, limiter=Limiter(Turns(4, 3)))
    headers = {b"authorization": b"Bearer key"}
    first = await guard.admit(headers, "a")
    before = first.tokens["query"]
    assert guard.remembered(headers[b"authorization"]) is first
    wall.now += jump_s
    assert guard.remembered(headers[b"authorization"]) is None
    assert (await guard.admit(headers, "a")).tokens["query"] != before


async def test_the_role_of_the_gateway_sees_keys_only_through_the_view(database: Database) -> None:
    conn = await asyncpg.connect(database.role("gateway"))
    try:
        for table in ("core.api_key", "core.tenant", "core.scope", "core.ledger", "core.version"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await conn.fetch(f"SELECT 1 FROM {table}")
    finally:
        await conn.close()


def test_new_keys_differ_and_are_keys() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(is_key(key) for key in keys)
    assert not any(
        is_key(text) for text in ("", "short", "with space in the key", "ü" * 20, "k" * 257, "line\nbreak" * 3)
    )


def test_who_has_a_network_has_one_address() -> None:
    guesses = Guesses(per_s=1, burst=3, clock=Clock())
    for number in range(3):
        guesses.charge(f"2001:db8:1:2::{number:x}")
    with pytest.raises(ServiceUnavailable):
        guesses.check("2001:db8:1:2:ffff::1")
    guesses.check("2001:db8:1:3::1")
    for _ in range(3):
        guesses.charge("::ffff:192.0.2.1")
    with pytest.raises(ServiceUnavailable):
        guesses.check("192.0.2.1")
    guesses.check("192.0.2.2")
    guesses.check("")
    guesses.check("fe80::1%eth0")
