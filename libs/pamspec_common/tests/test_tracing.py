"""What becomes a span and what travels on, with tracing off and on."""

import asyncio
from collections.abc import Iterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind

from pamspec_common.calls import Answer, Call
from pamspec_common.internal import answer
from pamspec_common.telemetry import tracing

SAMPLED = [f"00-{number:032x}-{number:016x}-01" for number in range(1, 41)]
NOT_SAMPLED = f"00-{99:032x}-{99:016x}-00"


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    """Tracing on, into memory."""
    exporter = InMemorySpanExporter()
    tracing.install(SimpleSpanProcessor(exporter))
    yield exporter
    tracing.shutdown()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00-aa-bb-01",
        SAMPLED[0] + "\r\nNats-Msg-Id: x",
        SAMPLED[0].upper() + "A",
        "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "0" * 16 + "-01",
        "ff-" + "1" * 32 + "-" + "1" * 16 + "-01",
        SAMPLED[0] + "\x1f",
    ],
)
def test_what_is_no_trace_context_goes_nowhere(text: str) -> None:
    assert tracing.onward(text) is None


def test_without_an_exporter_the_context_of_a_caller_travels_as_it_came() -> None:
    assert not tracing.enabled
    assert tracing.onward(SAMPLED[0]) == SAMPLED[0]
    assert tracing.onward(NOT_SAMPLED) == NOT_SAMPLED
    assert tracing.onward(None) is None
    assert tracing.ids() is None


def test_a_batch_is_one_span_with_bounded_links(exported: InMemorySpanExporter) -> None:
    received = [None, NOT_SAMPLED, *SAMPLED, *SAMPLED]
    with tracing.batched("relay", "publish", SpanKind.PRODUCER, received, {"messaging.system": "nats"}):
        pass
    (span,) = exported.get_finished_spans()
    assert span.parent is not None
    assert (span.parent.trace_id, span.parent.span_id) == (1, 1)
    assert [link.context.trace_id for link in span.links] == list(range(1, tracing.MAX_LINKS + 1))
    assert (span.attributes or {})["pamspec.links.omitted"] == len(SAMPLED) - tracing.MAX_LINKS


def test_a_batch_that_nobody_samples_is_no_span(exported: InMemorySpanExporter) -> None:
    with tracing.batched("relay", "publish", SpanKind.PRODUCER, [None, NOT_SAMPLED], {}) as span:
        assert span is None
    assert not exported.get_finished_spans()


def test_the_decision_of_the_caller_holds(exported: InMemorySpanExporter) -> None:
    with tracing.root("gateway", "POST /v1/create", NOT_SAMPLED, {}):
        assert tracing.onward(NOT_SAMPLED) == NOT_SAMPLED
        assert tracing.ids() is None
    with tracing.root("gateway", "POST /v1/create", SAMPLED[0], {}):
        told = tracing.onward(SAMPLED[0])
        assert told is not None
        assert told.startswith(SAMPLED[0][:35])
        assert told != SAMPLED[0]
    assert len(exported.get_finished_spans()) == 1


def test_a_root_that_is_not_sampled_leaves_nothing_behind_it() -> None:
    exporter = InMemorySpanExporter()
    tracing.install(SimpleSpanProcessor(exporter), ParentBased(ALWAYS_OFF))
    try:
        with tracing.root("gateway", "POST /v1/create", None, {}):
            assert tracing.onward(None) is None
    finally:
        tracing.shutdown()
    assert not exporter.get_finished_spans()


async def test_no_span_begins_behind_the_doors(exported: InMemorySpanExporter) -> None:
    async def read(call: Call) -> Answer:
        return Answer(200, b"{}")

    await answer({"read": read}, Call("read", "", b"{}"), "query")
    await answer({"read": read}, Call("read", "", b"{}", traceparent=NOT_SAMPLED), "query")
    assert not exported.get_finished_spans()
    await answer({"read": read}, Call("read", "", b"{}", traceparent=SAMPLED[0]), "query")
    assert [one.name for one in exported.get_finished_spans()] == ["query/read"]


async def test_an_error_is_told_by_its_kind_alone(exported: InMemorySpanExporter) -> None:
    with pytest.raises(RuntimeError), tracing.root("gateway", "POST /v1/create", None, {}):
        raise RuntimeError("needle-77")
    (span,) = exported.get_finished_spans()
    assert (span.attributes or {})["error.type"] == "RuntimeError"
    assert "needle-77" not in span.to_json()


@pytest.mark.parametrize(
    ("variables", "kind"),
    [
        ({}, "none"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, "none"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"}, "none"),
    ],
)
def test_the_standard_variables_decide(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], kind: str) -> None:
    for name in ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert tracing.wanted() == kind


def test_an_exporter_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    with pytest.raises(ValueError, match="otlp, console or none"):
        tracing.setup()


async def test_spans_reach_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived: list[ExportTraceServiceRequest] = []

    async def take(request: web.Request) -> web.Response:
        arrived.append(ExportTraceServiceRequest.FromString(await request.read()))
        return web.Response(content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    async with TestServer(app) as collector:
        for name in ("OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", str(collector.make_url("")))
        tracing.setup()
        try:
            with tracing.root("gateway", "POST /v1/create", None, {"http.request.method": "POST"}):
                pass
        finally:
            await asyncio.to_thread(tracing.shutdown)
    (resource,) = arrived[0].resource_spans
    named = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert named["service.name"] == "pamspec-gateway"
    assert [span.name for scope in resource.scope_spans for span in scope.spans] == ["POST /v1/create"]
