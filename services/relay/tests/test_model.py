"""The relay's pure decisions."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pamspec_common.streams import StoredMessage, StreamInfo
from pamspec_relay.model import (
    CHAIN_MESSAGES,
    Entry,
    Position,
    Ranges,
    Span,
    fitting,
    loss,
    pages,
    prepare,
    seen,
    share,
    wire,
)

INBOX = "_INBOX.x"
SUBJECT = "pamspec.ledger.0.tenant.scope.object_created"


def commands(data: bytes) -> list[tuple[str, str, dict[str, str], bytes]]:
    """(subject, reply, headers, payload) of protocol bytes, read by their own lengths."""
    found = []
    while data:
        line, _, data = data.partition(b"\r\n")
        verb, subject, *reply, header_size, total = line.decode().split(" ")
        assert verb == "HPUB"
        head, payload = data[: int(header_size)], data[int(header_size) : int(total)]
        assert data[int(total) : int(total) + 2] == b"\r\n"
        data = data[int(total) + 2 :]
        assert head.startswith(b"NATS/1.0\r\n")
        assert head.endswith(b"\r\n\r\n")
        headers = dict(item.split(": ", 1) for item in head.decode().split("\r\n")[1:-2])
        found.append((subject, reply[0] if reply else "", headers, payload))
    return found


def entries(count: int) -> list[Entry]:
    return [Entry(SUBJECT, f"evt:{n}", 2, n, b'{"n":%d,"t":"\xc3\xa4"}' % n) for n in range(1, count + 1)]


@given(st.integers(1, CHAIN_MESSAGES), st.integers(0, 10**12))
def test_every_message_of_a_chain_is_fenced_behind_the_one_before(count: int, last_seq: int) -> None:
    sent = commands(wire(prepare(entries(count), "token", INBOX), last_seq, INBOX))
    assert [headers["Nats-Expected-Last-Sequence"] for _, _, headers, _ in sent] == [
        str(last_seq + n) for n in range(count)
    ]
    assert [reply for _, reply, _, _ in sent] == [""] * (count - 1) + ["_INBOX.x.token"]
    assert not any("Nats-Batch-Id" in headers for _, _, headers, _ in sent)


@given(st.integers(CHAIN_MESSAGES + 1, 60), st.integers(0, 10**12))
def test_an_atomic_batch_is_numbered_fenced_once_and_committed_by_its_last(count: int, last_seq: int) -> None:
    sent = commands(wire(prepare(entries(count), "token", INBOX), last_seq, INBOX))
    assert [headers["Nats-Batch-Sequence"] for _, _, headers, _ in sent] == [str(n) for n in range(1, count + 1)]
    assert {headers["Nats-Batch-Id"] for _, _, headers, _ in sent} == {"token"}
    assert [n for n, item in enumerate(sent) if "Nats-Expected-Last-Sequence" in item[2]] == [0]
    assert sent[0][2]["Nats-Expected-Last-Sequence"] == str(last_seq)
    assert [n for n, item in enumerate(sent) if item[2].get("Nats-Batch-Commit") == "1"] == [count - 1]
    assert [n for n, item in enumerate(sent) if item[1]] == [0, count - 1]
    assert [item[3] for item in sent] == [entry.message for entry in entries(count)]
    assert all(item[2]["Pamspec-Event-Id"] == entry.event_id for item, entry in zip(sent, entries(count), strict=True))


def test_no_chain_is_made_where_chains_are_refused() -> None:
    assert "Nats-Batch-Id" in commands(wire(prepare(entries(2), "token", INBOX, chain=1), 0, INBOX))[0][2]
    assert "Nats-Batch-Id" not in commands(wire(prepare(entries(1), "token", INBOX, chain=1), 0, INBOX))[0][2]


def test_a_batch_ends_at_its_bounds_and_takes_at_least_one() -> None:
    assert fitting([10] * 50, 20, 1_000_000) == 20
    assert fitting([10_000] * 50, 1000, 50_000) == 4
    assert fitting([10_000_000], 1000, 50_000) == 1
    assert fitting([], 1000, 50_000) == 0


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12))), st.integers(0, 60), st.integers(0, 60))
def test_ranges_are_sets(added: list[tuple[int, int]], low: int, high: int) -> None:
    ranges, model = Ranges(), set()
    for start, length in added:
        ranges.add(start, start + length)
        model |= set(range(start, start + length + 1))
    listed = list(ranges)
    assert {n for a, b in listed for n in range(a, b + 1)} == model
    assert all(b + 1 < c for (_, b), (c, _) in pairwise(listed)), "ordered and joined"
    wanted = set(range(low, high + 1))
    assert {n for a, b in ranges.missing(low, high) for n in range(a, b + 1)} == wanted - model
    assert {n for a, b in ranges.common(low, high) for n in range(a, b + 1)} == wanted & model


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 90), st.integers(0, 40))), st.integers(1, 50))
def test_pages_hold_the_same_sequences_in_the_same_order(spans: list[tuple[int, int, int]], limit: int) -> None:
    given_spans = [Span(key, low, low + length) for key, low, length in spans]
    cut = list(pages(given_spans, limit))

    def flat(items: list[Span]) -> list[tuple[int, int]]:
        return [(span.scope_key, n) for span in items for n in range(span.low, span.high + 1)]

    assert [item for page in cut for item in flat(page)] == flat(given_spans)
    assert all(len(flat(page)) == limit for page in cut[:-1])
    assert all(0 < len(flat(page)) <= limit for page in cut)


def info(first: int = 1, last: int = 10, created: str = "then", deleted: int = 0) -> StreamInfo:
    return StreamInfo("S", created, first, last, last - first + 1, deleted, {})


POSITION = Position("then", 10, 0, 0)


def test_loss_is_told_from_expiry() -> None:
    assert loss(POSITION, info(), 0) is None
    assert loss(POSITION, info(last=25), 0) is None
    assert loss(None, info(), 0) is not None
    assert loss(POSITION, info(created="now"), 0) is not None
    assert loss(POSITION, info(last=9), 0) is not None
    assert loss(POSITION, info(deleted=1), 0) is not None
    assert loss(Position("then", 10, 0, 1), info(deleted=1), 0) is None
    assert loss(POSITION, info(first=7), 6) is None, "all up to 6 were stored before the oldest young mark"
    assert loss(POSITION, info(first=8), 6) is not None, "7 was too young to expire"
    assert loss(POSITION, info(first=8), None) is None, "everything is older than the marks"
    assert loss(Position("then", 10, 8, 0), info(first=8), 6) is None, "repaired already"


def test_only_messages_of_the_relay_are_read_back() -> None:
    ours = {"Pamspec-Event-Id": "evt:1", "Pamspec-Ledger-Sequence": "4", "Pamspec-Ledger-Epoch": "1"}
    found = seen(StoredMessage(1, SUBJECT, ours, b""))
    assert found is not None
    assert found[:5] == ("tenant", "scope", 4, "evt:1", 1)
    assert seen(StoredMessage(1, "pamspec.ledger.0.x", ours, b"")) is None
    for name, value in (("Pamspec-Event-Id", ""), ("Pamspec-Ledger-Sequence", "-4"), ("Pamspec-Ledger-Epoch", "²")):
        assert seen(StoredMessage(1, SUBJECT, {**ours, name: value}, b"")) is None


def test_partitions_are_shared_evenly() -> None:
    assert [share(8, members) for members in (1, 2, 3, 8, 20)] == [8, 4, 3, 1, 1]
    assert share(8, 0) == 8
