"""The pure core: decisions over an overlay, the rows that they leave, fingerprints and projections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pamspec_common import contracts, ledger
from pamspec_common.authorization.rights import Rights
from pamspec_common.calls import HEADER_REPLAYED, Answer
from pamspec_common.documents import Actor
from pamspec_common.instants import MICROSECOND
from pamspec_common.principal import Principal
from pamspec_common.strict_json import parse as parse_json
from pamspec_write.handlers.access import Access
from pamspec_write.handlers.admission.batches import admit_batch
from pamspec_write.handlers.admission.commands import admit, parse
from pamspec_write.model.commands import BatchCommand, Command, key_hash, operation_hash, source_hash, try_again
from pamspec_write.model.decide import Decider
from pamspec_write.model.facts import ScopeRef, ScopeState
from pamspec_write.model.projection import carried_projection, projection
from pamspec_write.model.rows import HEAD_SEQ, NULL, SEPARATOR, Rows
from pamspec_write.model.versions import Entropy
from services.write.tests.writer import PROVENANCE, Document, claim, edge, rights_with

PRINCIPAL = Principal("tenant:t", "agent:a", "agent", roles=frozenset({"admin"}))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
GENESIS = ledger.genesis(b"0" * 16)


def entropy() -> Entropy:
    """Ids and salts in order."""
    numbers: Iterator[int] = count(1)
    return Entropy(mint=lambda scheme: f"{scheme}:{next(numbers)}", salt=lambda: next(numbers).to_bytes(32, "big"))


def scope(key: int = 1) -> ScopeState:
    """An empty scope."""
    ref = ScopeRef(key, "tenant:t", f"scope:{key}", "t", f"s{key}", 0)
    return ScopeState(ref, 0, 0, GENESIS, NOW, 1, 1, 1)


class Core:
    """One group commit over two scopes, without a store."""

    def __init__(self, at: datetime = NOW) -> None:
        self.states = {1: scope(1), 2: scope(2)}
        self.rows = Rows()
        self.decider = Decider(self.states, self.rows, at, entropy())

    async def _resolve(self, principal: Principal, scope_id: str) -> ScopeRef:
        return self.states[int(scope_id[-1])].ref

    async def _rights(self, principal: Principal, actor: Actor, scope: ScopeRef | None) -> Rights:
        return rights_with(principal.roles)

    async def _grant(self, principal: Principal, delegation_id: str, actor_id: str) -> None:
        return None

    async def _unknown(self, principal: Principal, named: list[str]) -> list[str]:
        return named

    async def command(self, operation: str, document: Document) -> Command | BatchCommand:
        """The command of a request."""
        body = orjson.dumps(document)
        if operation == "batch":
            return await admit_batch(parse(body), body, PRINCIPAL, None, self._access())
        return await admit(operation, parse(body), body, PRINCIPAL, None, self._access())

    def _access(self) -> Access:
        return Access(self._resolve, self._rights, self._rights, self._grant, self._unknown)

    async def decide(self, operation: str, document: Document) -> Answer:
        """Its outcome."""
        return self.decider.decide(await self.command(operation, document))

    async def ok(self, operation: str, document: Document) -> Document:
        """The body of a success."""
        answer = await self.decide(operation, document)
        assert answer.status < 300, answer.body
        body: Document = orjson.loads(answer.body)
        return body

    def columns(self) -> list[list[str]]:
        """The columns as the statement splits them."""
        return [column.split(SEPARATOR) if column else [] for column in self.rows.arguments()]


async def test_a_group_is_chained_over_its_overlay() -> None:
    core = Core()
    made = await core.ok("create", claim("scope:1", "a"))
    await core.ok("create", claim("scope:2", "b"))
    change = {"object_id": made["object_id"], "expected_version_id": made["version_id"], "scope_id": "scope:1"}
    await core.ok("update", {**change, "canonical_content": "c", "provenance": PROVENANCE})
    previous = {1: GENESIS, 2: GENESIS}
    for row in core.rows.ledger:
        event = orjson.loads(row[6])
        contracts.check_event(event)
        key = int(row[0])
        previous[key] = ledger.entry_hash(previous[key], row[6].encode())
        assert row[7] == previous[key].hex()
    assert [(row[0], row[1]) for row in core.rows.ledger] == [("1", "1"), ("2", "1"), ("1", "2")]
    assert {key: (state.last_seq, state.last_hash) for key, state in core.states.items()} == {
        1: (2, previous[1]),
        2: (1, previous[2]),
    }
    assert core.rows.touched == {1, 2}


async def test_times_of_one_group_increase_and_never_go_back() -> None:
    core = Core(NOW - timedelta(hours=1))
    times = [(await core.ok("create", claim("scope:1")))["envelope"]["committed_at"] for _ in range(3)]
    assert times == [f"2026-01-01T00:00:00.00000{n}Z" for n in (1, 2, 3)]
    assert core.states[1].last_at == NOW + 3 * MICROSECOND
    ahead = Core(NOW + timedelta(hours=1))
    assert (await ahead.ok("create", claim("scope:1")))["envelope"]["committed_at"] == "2026-01-01T01:00:00.000000Z"


async def test_a_version_made_and_followed_in_one_group_is_no_head() -> None:
    core = Core()
    made = await core.ok("create", claim("scope:1", "a"))
    change = {"object_id": made["object_id"], "expected_version_id": made["version_id"], "scope_id": "scope:1"}
    await core.ok("update", {**change, "canonical_content": "c", "provenance": PROVENANCE})
    assert [row[2] for row in core.rows.versions.values()] == ["2", HEAD_SEQ]
    assert core.rows.closings == []


async def test_what_one_group_erases_it_never_writes() -> None:
    core = Core()
    document = claim("scope:1", "SECRET", source_event={"source": "s", "id": "1"}, idempotency_key="k")
    made = await core.ok("create", document)
    change = {"object_id": made["object_id"], "expected_version_id": made["version_id"], "scope_id": "scope:1"}
    await core.ok("delete", {**change, "policy_basis": "asked"})
    assert not any("SECRET" in column for column in core.rows.arguments())
    first = core.rows.versions[1, 1]
    assert [first[index] for index in (9, 10, 11, 26)] == [NULL] * 4
    create_record = core.rows.records[1, bytes.fromhex(first[8])]
    assert create_record[7:9] == [NULL, NULL]
    assert core.rows.sources[0][3:5] == [NULL, NULL]
    again = await core.decide("create", document)
    assert orjson.loads(again.body)["error"]["code"] == "object_deleted"
    fresh = {name: value for name, value in document.items() if name != "idempotency_key"}
    assert orjson.loads((await core.decide("create", fresh)).body)["error"]["code"] == "object_deleted"


@pytest.mark.parametrize("spoil", ["update", "conflict", "duplicate"])
async def test_a_failed_atomic_batch_leaves_the_overlay_as_it_was(spoil: str) -> None:
    core = Core()
    made = await core.ok("create", claim("scope:1", "kept", object_id="obj:kept"))
    await core.ok("create", claim("scope:2", "other", operation_id="op:used"))
    change = {"object_id": "obj:kept", "expected_version_id": made["version_id"]}
    bad = {
        "update": {"operation": "update", **change, "object_id": "obj:none", "provenance": PROVENANCE},
        "conflict": {"operation": "create", **claim("scope:1", "taken", object_id="obj:kept")},
        "duplicate": {"operation": "create", **claim("scope:2", "changed", operation_id="op:used")},
    }[spoil]
    before_states = {key: replace(state) for key, state in core.states.items()}
    before_rows = core.rows.arguments()
    batch = {
        "scope_id": "scope:1",
        "atomic": True,
        "items": [
            {"operation": "create", **claim("scope:2", "new")},
            {"operation": "delete", **change, "policy_basis": "p"},
            bad,
        ],
    }
    answer = await core.decide("batch", batch)
    assert orjson.loads(answer.body)["error"]["details"]["index"] == 2
    stored = spoil != "conflict"
    assert len(core.rows.records) == (3 if stored else 2)
    if not stored:
        assert core.rows.arguments() == before_rows
    for key, state in core.states.items():
        was = before_states[key]
        assert (state.last_seq, state.last_hash, state.last_at) == (was.last_seq, was.last_hash, was.last_at)
    assert core.states[1].heads["obj:kept"].availability_state == "available"
    assert core.rows.erasures == []


async def test_a_refusal_leaves_the_ledger_alone() -> None:
    core = Core()
    missing = {"scope_id": "scope:1", "object_id": "obj:x", "expected_version_id": "ver:x", "policy_basis": "p"}
    answer = await core.decide("delete", {**missing, "idempotency_key": "k"})
    assert answer.status == 404
    assert core.rows.ledger == []
    again = await core.decide("delete", {**missing, "idempotency_key": "k"})
    assert (again.body, again.headers[HEADER_REPLAYED]) == (answer.body, "true")
    assert len(core.rows.records) == 1


async def test_every_table_has_as_many_values_in_each_of_its_columns() -> None:
    core = Core()
    for number in range(3):
        await core.ok("create", claim("scope:1", number, source_event={"source": "s", "id": str(number)}))
    made = await core.ok("create", claim("scope:1", "x\u001f\u001e\u0000", object_type="urn:x", schema_id="urn:y"))
    change = {"object_id": made["object_id"], "expected_version_id": made["version_id"], "scope_id": "scope:1"}
    await core.ok("delete", {**change, "policy_basis": "\u001f"})
    lengths = [len(column) for column in core.columns()]
    assert lengths == [5] * 27 + [5] * 8 + [5] * 14 + [3] * 5 + [0] * 3 + [0] * 4
    one, two = await core.ok("create", claim("scope:1")), await core.ok("create", claim("scope:1"))
    await core.ok("relate", edge(one, two, "urn:\u00e4"))
    lengths = [len(column) for column in core.columns()]
    assert lengths == [8] * 27 + [8] * 8 + [8] * 14 + [3] * 5 + [0] * 3 + [8] * 4


async def test_what_a_tries_again_command_finds_is_no_replay() -> None:
    core = Core()
    command = await core.command("create", claim("scope:1"))
    first = core.decider.decide(command)
    command.attempts = 1
    assert core.decider.decide(command) == first
    assert len(core.rows.versions) == 1


async def test_a_lost_commit_of_a_nameless_batch_is_not_repeated() -> None:
    core = Core()
    batch = await core.command(
        "batch", {"scope_id": "scope:1", "items": [{"operation": "create", **claim("scope:2")}] * 2}
    )
    assert isinstance(batch, BatchCommand)
    first = core.decider.decide(batch)
    try_again(batch)
    again = core.decider.decide(batch)
    assert (again.status, again.body, again.headers) == (first.status, first.body, first.headers)
    assert len(core.rows.versions) == 2


def test_the_index_keys_of_names_do_not_meet() -> None:
    hashes = {
        operation_hash("a", "b"),
        operation_hash("ab", ""),
        operation_hash("", "ab"),
        key_hash("a", "b", ""),
        key_hash("a", "", "b"),
        key_hash("", "a", "b"),
        source_hash("a", "b"),
        source_hash("ab", ""),
        source_hash("1:a", "b"),
        source_hash("1", ":ab"),
    }
    assert len(hashes) == 10
    assert {len(value) for value in hashes} == {16}


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(blacklist_categories=["Cs"])), inner),
    max_leaves=20,
)


def _holds_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any("\0" in name or _holds_nul(below) for name, below in value.items())
    if isinstance(value, list):
        return any(map(_holds_nul, value))
    return isinstance(value, str) and "\0" in value


@given(values)
def test_a_projection_is_the_content_without_what_jsonb_cannot_hold(value: Any) -> None:
    content = json.dumps(value, ensure_ascii=True).encode()
    found = projection(content, parse_json(content))
    assert found == carried_projection(content)
    if found is None:
        assert not _holds_nul(value)
    else:
        assert "\\u0000" not in found.replace("\\\\", "")
        assert not _holds_nul(json.loads(found))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('"a\\u0000"', "null"),
        ('{"a\\u0000":1,"b":"c\\u0000","d":["e\\u0000",2]}', '{"d":[null,2]}'),
        ('["\\\\u0000"]', '["\\\\u0000"]'),
        ("[1e-5000,0.5]", "[0.0,0.5]"),
        ('{"b":1}', None),
    ],
)
def test_projections(content: str, expected: str | None) -> None:
    assert projection(content.encode(), parse_json(content.encode())) == expected


async def test_in_one_transaction_each_command_sees_the_policy_before_it() -> None:
    core = Core()
    none: Document = {"object_types": {"allow": []}}
    for version, policy in enumerate([none, {}, {"object_types": {"deny": ["*"]}}]):
        change = {"scope_id": "scope:1", "policy": policy, "expected_policy_version": version, "policy_basis": "test"}
        assert (await core.decide("update_scope", change)).status == 200
        assert (await core.decide("create", claim("scope:1"))).status == (422 if policy else 201)
        assert (await core.decide("create", claim("scope:2"))).status == 201
    rules = core.states[1].rules
    assert (rules.version, rules.policy_version) == (3, 3)
    assert [row.policy_version for row in core.rows.policies] == [1, 2, 3]
    assert core.rows.rules == {1: 3}
