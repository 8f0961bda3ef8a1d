"""`pamspec restored`: after a restore of the store from a backup, before anything serves."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import orjson
from nats.aio.client import Client

import pamspec_write.app
from pamspec_cli import anchors
from pamspec_cli.commands.verify import connected
from pamspec_cli.connection import FAILED, OK, Misused, reporting
from pamspec_cli.data import DataDirectory, chosen
from pamspec_cli.deployment import in_environment
from pamspec_cli.restoring import queries
from pamspec_cli.restoring.accepting import Accepting, accepting, epoch_of
from pamspec_cli.restoring.queries import Connection, Scope
from pamspec_cli.restoring.replay import Replay, Replayed
from pamspec_cli.stack import Addresses, servers
from pamspec_common import streams
from pamspec_common.checkpoint_bucket import Held
from pamspec_common.checkpoints import STREAM, Checkpoint, read
from pamspec_common.erasure_log import ErasureFiles, ErasureStream, LogEntry
from pamspec_common.peers import LocalPeer
from pamspec_common.principal import TokenSigner
from pamspec_write.settings import Settings as WriteSettings

SUMMARY = "after the store was restored from a backup: a new ledger epoch, and erasures since then are done again"
_LEDGERS = "PAMSPEC_LEDGER_"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--data", metavar="DIR", help="the data directory (PAMSPEC_DATA, else ./.data)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when everything was done, 1 when an erasure was refused or a ledger is not whole: see it to, and call again."""
    return asyncio.run(_run(DataDirectory(chosen(arguments.data)), dry=arguments.dry_run))


@dataclass(frozen=True)
class Anchored:
    """What the bucket of checkpoints holds of one scope."""

    tokens: tuple[str, str]
    held: Held
    checkpoint: Checkpoint


async def _run(data: DataDirectory, *, dry: bool) -> int:
    async with _servers(data) as addresses, AsyncExitStack() as stack:
        stack.enter_context(in_environment(_variables(addresses, data)))
        connection = await stack.enter_async_context(connected(addresses.database_url))
        running = await queries.running(connection)
        if running:
            raise Misused(f"stop every service first; connected to the store: {', '.join(running)}")
        places = await stack.enter_async_context(anchors.places(data))
        work = await accepting(connection, places, data)
        client = places.client
        assert client is not None
        scopes = await queries.every_scope(connection)
        held = await _anchored(client)
        epoch = 1 + max(
            [
                *(scope.ledger_epoch for scope in scopes),
                *(epoch_of(one.held) for one in held),
                *(checkpoint.ledger_epoch for checkpoint in (places.files or {}).values()),
            ],
            default=0,
        )
        lost = _lost(scopes, held, places)
        print(f"{len(scopes)} scopes are here, {len(lost)} that were signed since the backup are not")
        if dry:
            unknown = await _unknown(connection, _log(client, data))
            print(f"{unknown} erasures in the log that this store does not know of")
            return OK
        broken = await _accept(work, scopes, epoch)
        await queries.raise_empty(connection, epoch)
        for tokens, checkpoint, of in lost:
            await work.give_up(tokens, checkpoint, of, epoch)
        print(f"every ledger is in epoch {epoch}; clients are told with their next request")
        await _remove_streams(client)
        done = await _replay(addresses, connection, _log(client, data), scopes, epoch)
    # Also where something was refused: whoever has to release a hold needs the service for it.
    data.unfinished_restore.unlink(missing_ok=True)
    return _told(done, broken)


@asynccontextmanager
async def _servers(data: DataDirectory) -> AsyncIterator[Addresses]:
    """The servers that the environment names, else those of the data directory, which nothing else uses then."""
    database_url, nats_url = os.environ.get("PAMSPEC_DATABASE_URL"), os.environ.get("PAMSPEC_NATS_URL")
    if (database_url is None) != (nats_url is None):
        raise Misused("set both PAMSPEC_DATABASE_URL (an administrator's) and PAMSPEC_NATS_URL, or neither")
    if database_url is None or nats_url is None:
        with data:
            async with servers(data) as addresses:
                yield addresses
        return
    if "PAMSPEC_TOKEN_KEYS" not in os.environ:
        raise Misused("set PAMSPEC_TOKEN_KEYS as the services have it: erasures are sealed under it")
    seed = os.environ.get("PAMSPEC_NATS_NKEY_SEED")
    yield Addresses(database_url, {"pamspec_write": database_url}, nats_url, seed, {}, valkey_url="")


def _variables(addresses: Addresses, data: DataDirectory) -> dict[str, str]:
    found = {"PAMSPEC_NATS_URL": addresses.nats_url}
    if addresses.nats_seed:
        found["PAMSPEC_NATS_NKEY_SEED"] = addresses.nats_seed
    if "PAMSPEC_TOKEN_KEYS" not in os.environ:
        found["PAMSPEC_TOKEN_KEYS"] = json.dumps({"k1": data.secret("token-key")})
    return found


async def _anchored(client: Client) -> list[Anchored]:
    """Everything in the bucket that can be read."""
    info = await streams.inspect(client, STREAM)
    found: list[Anchored] = []
    if info is None:
        return found
    async for page in streams.read(client, info, 0):
        for message in page:
            tenant_token, scope_token = message.subject.split(".")[-2:]
            try:
                checkpoint = read(message.data)
            except ValueError:
                continue
            found.append(Anchored((tenant_token, scope_token), Held(message.sequence, message.data), checkpoint))
    return found


async def _log(client: Client, data: DataDirectory) -> AsyncIterator[LogEntry]:
    """The erasure log of the bus, then that of the files."""
    async for entry in ErasureStream(client).entries():
        yield entry
    for entry in ErasureFiles(anchors.directory(data)).entries():
        yield entry


async def _unknown(connection: Connection, log: AsyncIterator[LogEntry]) -> int:
    """How many erasures of the log the store does not know of."""
    found: set[str] = set()
    async for entry in log:
        ids = {one.erasure_id for one in entry.erasures}
        found |= ids - await queries.known(connection, ids)
    return len(found)


Lost = tuple[tuple[str, str] | None, Checkpoint, Held | None]
"""A ledger that was signed and is not in the store: where the bucket holds it, if it does."""


def _lost(scopes: list[Scope], held: list[Anchored], places: anchors.Places) -> list[Lost]:
    here = {scope.ledger_id.hex() for scope in scopes}
    found: dict[str, Lost] = {checkpoint.ledger_id: (None, checkpoint, None) for checkpoint in places.unknown(here)}
    for one in held:
        if one.checkpoint.size and one.checkpoint.ledger_id not in here:
            found[one.checkpoint.ledger_id] = (one.tokens, one.checkpoint, one.held)
    return list(found.values())


async def _accept(work: Accepting, scopes: list[Scope], epoch: int) -> list[str]:
    """Every ledger in its new epoch; what was wrong with those that are not whole."""
    broken: list[str] = []
    for scope in scopes:
        if scope.last_seq == 0:
            continue
        try:
            await work.accept(scope.tenant_id, scope.scope_id, scope.scope_key, epoch)
        except Misused as error:
            broken.append(f"{scope.tenant_id} {scope.scope_id}: {error}")
    return broken


async def _remove_streams(client: Client) -> None:
    """The copies of a history that is no more; the relay makes them again and fills them from the ledger."""
    at = 0
    names: list[str] = []
    while True:
        reply = await client.request("$JS.API.STREAM.NAMES", orjson.dumps({"offset": at}), timeout=5)
        page = orjson.loads(reply.data)
        names += page.get("streams") or []
        at = len(names)
        if at >= page["total"] or not page.get("streams"):
            break
    for name in names:
        if name.startswith(_LEDGERS):
            await client.request(f"$JS.API.STREAM.DELETE.{name}", b"", timeout=30)
    print("the streams of the ledgers are removed; the relay fills them again")


async def _replay(
    addresses: Addresses, connection: Connection, log: AsyncIterator[LogEntry], scopes: list[Scope], epoch: int
) -> Replayed:
    with in_environment({"PAMSPEC_DATABASE_URL": addresses.of_role("write")}):
        settings = WriteSettings()
    service = pamspec_write.app.build(settings)
    await service.start()
    try:
        return await Replay(connection, LocalPeer(service), TokenSigner.of(settings), epoch).run(log, scopes)
    finally:
        await service.stop()


def _told(done: Replayed, broken: list[str]) -> int:
    print(
        f"erased again: {done.erased} objects and relationships, {done.scopes} scopes;"
        f" nothing was left of {done.nothing_left}"
    )
    for code, count in sorted(done.refused.items()):
        print(f"NOT erased again: {count} ({code}): remove what refuses it, then call  pamspec restored  again")
    for line in broken:
        print(f"NOT accepted: {line}")
    return FAILED if done.refused or broken else OK
