"""One trace from the client over the services and the bus to the subscriber, with links where many travel together."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest
import pytest_asyncio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from libs.conftest import Product
from pamspec_client import AsyncClient, Client, Event, PamspecError
from pamspec_client.documents import FollowChannel
from pamspec_common.telemetry import tracing

NEEDLE = "needle-9f3c1a"
_numbers = itertools.count(1)


class Spans:
    """What was exported, by trace."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()

    def of(self, trace_id: int) -> list[ReadableSpan]:
        """The spans of one trace."""
        return [one for one in self.exporter.get_finished_spans() if one.context and one.context.trace_id == trace_id]

    async def named(self, trace_id: int, *names: str) -> dict[str, ReadableSpan]:
        """The spans of a trace by name, as soon as all of these are there."""
        async with asyncio.timeout(60):
            while not set(names) <= (found := {one.name: one for one in self.of(trace_id)}).keys():
                await asyncio.sleep(0.02)
        return found


@pytest.fixture
def spans() -> Iterator[Spans]:
    """Tracing on, into memory."""
    made = Spans()
    tracing.install(SimpleSpanProcessor(made.exporter))
    yield made
    tracing.shutdown()


@pytest_asyncio.fixture
async def scope(agent_client: AsyncClient) -> str:
    made = await agent_client.create_scope(scope_id=f"workspace:traced-{next(_numbers)}", scope_kind="workspace")
    return made.scope_id


tracer = TracerProvider().get_tracer("an agent")


async def create(client: AsyncClient, scope: str) -> int:
    """A write in a trace of its own; the trace's id."""
    with tracer.start_as_current_span("think") as span:
        await client.create(
            scope_id=scope,
            object_type="claim",
            canonical_content={"statement": NEEDLE},
            provenance={"activity": "told", "source_ref": f"chat:{NEEDLE}"},
        )
        return int(span.get_span_context().trace_id)


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def linked(span: ReadableSpan) -> set[int]:
    """The traces that a span is linked to."""
    return {link.context.trace_id for link in span.links}


async def test_one_trace_from_the_door_to_the_consumers(spans: Spans, agent_client: AsyncClient, scope: str) -> None:
    traced = await create(agent_client, scope)
    consumers = ("process PAMSPEC_LEDGER_0", "publish PAMSPEC_LEDGER_0")
    found = await spans.named(traced, "POST /v1/create", "write/create", "COMMIT", *consumers)
    door, write = found["POST /v1/create"], found["write/create"]
    assert (door.kind, write.kind, parent_of(write)) == (SpanKind.SERVER, SpanKind.SERVER, id_of(door))
    kinds = {"COMMIT": SpanKind.CLIENT, consumers[0]: SpanKind.CONSUMER, consumers[1]: SpanKind.PRODUCER}
    for name, kind in kinds.items():
        assert (found[name].kind, parent_of(found[name])) == (kind, id_of(write)), name
        assert traced in linked(found[name]), name
    services = {one.resource.attributes["service.name"] for one in spans.of(traced)}
    async with asyncio.timeout(60):
        while not {"pamspec-indexing", "pamspec-delegation"} <= services:
            await asyncio.sleep(0.02)
            services = {one.resource.attributes["service.name"] for one in spans.of(traced)}
    assert services >= {"pamspec-gateway", "pamspec-write", "pamspec-relay"}
    assert (door.attributes or {})["http.response.status_code"] == 201
    assert (found["COMMIT"].attributes or {})["db.system.name"] == "postgresql"
    for name in consumers:
        assert (found[name].attributes or {})["messaging.destination.name"] == "PAMSPEC_LEDGER_0"


@pytest.mark.parametrize("channel", ["sse", "websocket", "nats"])
async def test_a_follower_learns_the_trace_of_a_write(
    spans: Spans, agent_client: AsyncClient, scope: str, channel: FollowChannel
) -> None:
    opened = await agent_client.subscribe(
        scope_id=scope, filter={"event_classes": ["object_created"]}, channel="nats" if channel == "nats" else "sse"
    )
    arrived: asyncio.Queue[Event] = asyncio.Queue()

    async def follow() -> None:
        async for event in agent_client.follow(opened.subscription_id, channel=channel):
            arrived.put_nowait(event)

    following = asyncio.create_task(follow())
    try:
        async with asyncio.timeout(90):
            while True:
                traced = await create(agent_client, scope)
                event = await arrived.get()
                # What a channel reads from the ledger before it is live has no trace.
                if event.traceparent is not None:
                    break
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert int(event.traceparent[3:35], 16) == traced
    found = await spans.named(traced, "write/create", f"deliver {channel}")
    assert int(event.traceparent[36:52], 16) == id_of(found["write/create"])
    assert found[f"deliver {channel}"].kind is SpanKind.PRODUCER
    assert parent_of(found[f"deliver {channel}"]) == id_of(found["write/create"])
    assert b"traceparent" not in event.raw


async def test_a_poll_that_waited_is_linked_to_the_write(spans: Spans, agent_client: AsyncClient, scope: str) -> None:
    opened = await agent_client.subscribe(scope_id=scope, filter={"event_classes": ["object_created"]})
    after, written = opened.start_sequence, set[int]()
    async with asyncio.timeout(90):
        while True:
            polling = asyncio.create_task(
                agent_client.poll(subscription_id=opened.subscription_id, after_sequence=after, wait_ms=20_000)
            )
            await asyncio.sleep(0.1)
            written.add(await create(agent_client, scope))
            after = (await polling).next_after_sequence
            polls = [one for one in spans.exporter.get_finished_spans() if one.name == "subscription/poll"]
            if any(written & linked(one) for one in polls):
                break


async def test_a_call_over_the_bus_is_in_the_trace(spans: Spans, product: Product, scope: str) -> None:
    async with AsyncClient(product.nats.url, product.key) as client:
        found = await spans.named(await create(client, scope), "request create", "write/create")
    assert parent_of(found["write/create"]) == id_of(found["request create"])


async def test_the_blocking_client_passes_the_trace_on(spans: Spans, product: Product, scope: str) -> None:
    def work() -> int:
        with Client(product.url, product.key) as client, tracer.start_as_current_span("think") as span:
            client.query(scope_id=scope, query={"kind": "structured", "trust": "working"})
            return span.get_span_context().trace_id

    found = await spans.named(await asyncio.to_thread(work), "POST /v1/query", "query/query")
    assert parent_of(found["query/query"]) == id_of(found["POST /v1/query"])


async def test_what_is_committed_together_is_linked(spans: Spans, agent_client: AsyncClient, scope: str) -> None:
    written = set(await asyncio.gather(*(create(agent_client, scope) for _ in range(20))))
    for name in ("COMMIT", "publish PAMSPEC_LEDGER_0", "process PAMSPEC_LEDGER_0"):
        async with asyncio.timeout(60):
            while True:
                found = [one for one in spans.exporter.get_finished_spans() if one.name == name]
                if written <= set[int]().union(*map(linked, found)):
                    break
                await asyncio.sleep(0.02)
        assert all(len(one.links) <= tracing.MAX_LINKS for one in found)


async def test_spans_hold_no_content_no_names_and_no_keys(
    spans: Spans, product: Product, agent_client: AsyncClient, scope: str
) -> None:
    await create(agent_client, scope)
    with tracer.start_as_current_span("think"), pytest.raises(PamspecError):
        await agent_client.read(scope_id=scope, object_id=f"obj:{NEEDLE}")
    traced = await create(agent_client, scope)
    await spans.named(traced, "process PAMSPEC_LEDGER_0")
    exported = spans.exporter.get_finished_spans()
    assert {"query/read", "write/create"} <= {one.name for one in exported}
    text = "".join(one.to_json() for one in exported if one.name != "think")
    for private in (NEEDLE, product.key, scope, scope.removeprefix("workspace:"), "pamspec.op.", "human:", "agent:"):
        assert private not in text.replace("pamspec.op.{principal_token}.{operation}", ""), private
    assert not any(one.events for one in exported)
