"""What must hold of a deployment after any fault: the ledger is whole, and the bus holds the same, each entry once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nats.aio.client import Client as NatsClient

from pamspec_cli import development
from pamspec_cli.commands.verify import check_scope
from pamspec_common import ids, ledger, streams, strict_json
from pamspec_common.bus import HEADER_EVENT_ID, HEADER_SEQUENCE
from pamspec_common.calls import Call
from pamspec_common.peers import RemotePeer
from pamspec_common.principal import Principal, TokenSigner
from tests.integration.harness import Fleet, until

HEADS_SQL = """
SELECT scope_key, scope_id, ledger_id, last_seq, last_hash FROM core.scope JOIN core.scope_head USING (scope_key)
WHERE $1::text[] IS NULL OR scope_id = ANY($1) ORDER BY scope_key
"""
ORPHANS_SQL = """
SELECT count(*) FROM core.version v FULL JOIN core.version_span s
  ON (v.scope_key, v.ledger_seq) = (s.scope_key, s.from_seq)
WHERE v.scope_key IS NULL OR s.scope_key IS NULL
  OR NOT EXISTS (SELECT FROM core.ledger l WHERE (l.scope_key, l.sequence) = (v.scope_key, v.ledger_seq))
"""


class Entry(NamedTuple):
    """A ledger entry, as far as it is compared."""

    sequence: int
    event_id: str


@dataclass(frozen=True)
class Whole:
    """What was compared: each scope's entries, and those among them that made an object."""

    entries: dict[str, list[Entry]]
    created: dict[str, list[Entry]]


async def lag(fleet: Fleet) -> int:
    """How many events wait for the bus."""
    async with fleet.database() as connection:
        return int(await connection.fetchval("SELECT count(*) FROM relay.outbox"))


async def drained(fleet: Fleet, within_s: float = 30.0) -> float:
    """Seconds until nothing waits for the bus."""
    async with fleet.database() as connection:

        async def empty() -> bool:
            return not await connection.fetchval("SELECT EXISTS (SELECT FROM relay.outbox)")

        return await until(empty, within_s, "the outbox is empty")


async def whole(fleet: Fleet, scopes: Sequence[str] | None = None, *, within_s: float = 30.0) -> Whole:
    """Every chain is right, every version has its entry, and JetStream read back holds what the ledger holds.

    Of these scopes, or of all.
    """
    await drained(fleet, within_s)
    found = Whole({}, {})
    # Verification ends transactions: on a connection of its own, so that what is compared here stays one snapshot.
    async with (
        fleet.database() as verifying,
        fleet.database() as connection,
        connection.transaction(isolation="repeatable_read"),
    ):
        heads = await connection.fetch(HEADS_SQL, None if scopes is None else list(scopes))
        for scope_key, scope_id, ledger_id, last_seq, last_hash in heads:
            rows = await connection.fetch(
                "SELECT sequence, event_id, event_type, event, entry_hash FROM core.ledger WHERE scope_key = $1"
                " ORDER BY sequence",
                scope_key,
            )
            at = ledger.genesis(ledger_id)
            for row in rows:
                at = ledger.entry_hash(at, row["event"])
                assert at == row["entry_hash"], f"the chain of {scope_id} breaks at {row['sequence']}"
            assert [row["sequence"] for row in rows] == list(range(1, last_seq + 1)), f"{scope_id} has a gap"
            assert at == last_hash
            check = await check_scope(verifying, scope_id, scope_key)
            assert not check.problems, f"pamspec verify, {scope_id}: {check.problems}"
            found.entries[scope_id] = [Entry(row["sequence"], row["event_id"]) for row in rows]
            found.created[scope_id] = [
                Entry(row["sequence"], row["event_id"]) for row in rows if row["event_type"] == "object_created"
            ]
        orphans = await connection.fetchval(ORPHANS_SQL)
        assert orphans == 0, f"{orphans} versions without their entry"
    await drained(fleet, within_s)
    async with fleet.bus() as client:
        stored = await in_stream(fleet, client)
    for scope_id, entries in found.entries.items():
        in_order = stored.pop(ids.subject_token(development.TENANT_ID, scope_id), [])
        assert in_order[: len(entries)] == entries, f"the stream differs from the ledger of {scope_id}"
        # What the services tell of by themselves, a refusal for one, may have come since the ledger was read.
        later = [entry.sequence for entry in in_order[len(entries) :]]
        assert later == list(range(len(entries) + 1, len(in_order) + 1)), f"the stream doubles or skips in {scope_id}"
    assert scopes is not None or not stored, "the stream holds scopes that the ledger does not have"
    await verified(fleet, list(found.entries))
    return found


async def in_stream(fleet: Fleet, client: NatsClient) -> dict[str, list[Entry]]:
    """What every partition's stream holds, by scope token, in the order of the stream."""
    stored: dict[str, list[Entry]] = {}
    for partition in range(int(fleet.variables.get("PAMSPEC_PARTITIONS", "1"))):
        info = await streams.inspect(client, f"PAMSPEC_LEDGER_{partition}")
        assert info is not None, f"there is no stream of partition {partition}"
        async for page in streams.read(client, info, 0):
            for message in page:
                scope_token = message.subject.split(".")[4]
                entry = Entry(int(message.headers[HEADER_SEQUENCE]), message.headers[HEADER_EVENT_ID])
                stored.setdefault(scope_token, []).append(entry)
    return stored


async def verified(fleet: Fleet, scopes: list[str]) -> None:
    """The service's own verification finds every scope right."""
    rights = frozenset(development.RIGHTS)
    roles = frozenset(development.ROLES)
    principal = Principal(development.TENANT_ID, development.ACTOR_ID, development.ACTOR_KIND, rights, roles=roles)
    kid, key = next(iter(fleet.deployment.token_keys.items()))
    token = TokenSigner(kid, key.encode()).sign(principal)
    query = RemotePeer(fleet.peers, fleet["query"].url)
    for scope_id in scopes:
        answer = await query.call(Call("verify_ledger", token, strict_json.dumps({"scope_id": scope_id})))
        document = strict_json.parse(answer.body)
        assert answer.status == 200, document
        assert document["ok"], f"{scope_id}: {document['first_problem']}"
