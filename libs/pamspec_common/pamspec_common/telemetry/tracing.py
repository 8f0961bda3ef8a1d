"""Traces: one trace from a door through the group commit, the bus and the consumers to the subscriber.

Off unless the environment names an exporter (OTEL_*); then nothing here is reached but a test of `enabled`, and the
context that a caller sends (W3C traceparent) still travels to whoever is told of its write.

Invariants: a root begins only at a door; what works on many at once is one span with links, of which there are at most
MAX_LINKS; no span carries content, an id of memory, a subject or the message of an error (PAMSPEC P195).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags

MAX_LINKS = 32
HEADER = "traceparent"
PATTERN = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_SAMPLED = "1357" + "9bdf"

Attributes = Mapping[str, str | int]

enabled = False
"""Whether spans are made; looked at before anything else is done for a trace."""
_processor: SpanProcessor | None = None
_sampler: Sampler | None = None
_providers: dict[str, TracerProvider] = {}


def setup() -> None:
    """Export spans as the standard variables say; without OTEL_TRACES_EXPORTER or an OTLP endpoint make none.

    Raises ValueError for an exporter that is not there.
    """
    kind = wanted()
    if kind == "none" or enabled:
        return
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

    exporter: SpanExporter
    if kind == "console":
        exporter = ConsoleSpanExporter()
    elif kind == "otlp":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter()
    else:
        raise ValueError(f"OTEL_TRACES_EXPORTER takes otlp, console or none, not {kind!r}")
    install(BatchSpanProcessor(exporter))


def wanted() -> str:
    """The exporter that the environment asks for: otlp, console, none, or one that is not there."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "none"
    named = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return named or ("otlp" if any(os.environ.get(name) for name in endpoints) else "none")


def install(processor: SpanProcessor, sampler: Sampler | None = None) -> None:
    """Make spans from now on and give them to `processor`; the sampler is that of OTEL_TRACES_SAMPLER, parent-based."""
    global enabled, _processor, _sampler
    _processor, _sampler = processor, sampler
    enabled = True


def shutdown() -> None:
    """Export what waits, and make no more spans; without a setup nothing happens."""
    global enabled, _processor
    enabled = False
    _providers.clear()
    if _processor is not None:
        _processor.shutdown()
        _processor = None


def _tracer(service: str) -> trace.Tracer:
    """Each service has a name of its own, also where several are one process."""
    provider = _providers.get(service)
    if provider is None:
        assert _processor is not None
        name = os.environ.get("OTEL_SERVICE_NAME") or f"pamspec-{service}"
        resource = Resource.create({SERVICE_NAME: name})
        provider = _providers[service] = TracerProvider(_sampler, resource, shutdown_on_exit=False)
        provider.add_span_processor(_processor)
    return provider.get_tracer("pamspec")


def valid(traceparent: str | None) -> str | None:
    """The context, where it is one."""
    return traceparent if traceparent is not None and PATTERN.fullmatch(traceparent) else None


def current() -> str | None:
    """The context of the span that this task works in."""
    span = trace.get_current_span()
    return _text(span.get_span_context()) if span.is_recording() else None


def onward(received: str | None) -> str | None:
    """What travels on from here: the context of the span that this task works in, else the one that came in."""
    return (current() if enabled else None) or valid(received)


def ids() -> tuple[str, str] | None:
    """The trace and the span that this task works in, for log records."""
    if not enabled:
        return None
    span = trace.get_current_span()
    if not span.is_recording():
        return None
    found = span.get_span_context()
    return f"{found.trace_id:032x}", f"{found.span_id:016x}"


@contextmanager
def root(service: str, name: str, received: str | None, attributes: Attributes) -> Iterator[Span]:
    """A request at a door: goes on with the caller's trace, or begins one."""
    parent = _parent(valid(received))
    span = _tracer(service).start_span(name, parent, SpanKind.SERVER, attributes)
    if not span.is_recording():
        yield span
        return
    with _working(span):
        yield span


@contextmanager
def call(service: str, operation: str, received: str | None) -> Iterator[Span | None]:
    """An operation in the service that owns it; None, and no span, where no trace comes in."""
    came = valid(received) or current()
    if came is None or not _sampled(came):
        yield None
        return
    method = f"{service}/{operation}"
    attributes = {"rpc.system.name": "pamspec", "rpc.method": method}
    span = _tracer(service).start_span(method, _parent(came), SpanKind.SERVER, attributes)
    with _working(span):
        yield span


def messages(system: str, operation: str, kind: str, destination: str, count: int) -> dict[str, str | int]:
    """The attributes of work on a batch of messages, by the conventions of OpenTelemetry."""
    return {
        "messaging.system": system,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": destination,
        "messaging.batch.message_count": count,
    }


def batch(
    service: str, name: str, kind: SpanKind, received: Iterable[str | None], attributes: Attributes
) -> Span | None:
    """A span for work on many at once, which its caller ends: child of the first of their contexts, linked to each.

    None where none of them is sampled. Links beyond MAX_LINKS are counted only.
    """
    found = {came: None for came in received if came is not None and _sampled(came)}
    if not found:
        return None
    told = list(found)
    links = [Link(_context(came)) for came in told[:MAX_LINKS]]
    if len(told) > MAX_LINKS:
        attributes = {**attributes, "pamspec.links.omitted": len(told) - MAX_LINKS}
    return _tracer(service).start_span(name, _parent(told[0]), kind, attributes, links)


@contextmanager
def batched(
    service: str, name: str, kind: SpanKind, received: Iterable[str | None], attributes: Attributes
) -> Iterator[Span | None]:
    """The same around a block."""
    span = batch(service, name, kind, received, attributes)
    if span is None:
        yield None
        return
    with _working(span):
        yield span


def link(received: Iterable[str | None]) -> None:
    """Link the span that this task works in to these, as far as MAX_LINKS."""
    span = trace.get_current_span()
    if span.is_recording():
        for came in list({one: None for one in received if one is not None and _sampled(one)})[:MAX_LINKS]:
            span.add_link(_context(came))


def failed(span: Span, error_type: str) -> None:
    """Mark a span as failed by the kind of the error; its message may hold what must not leave."""
    span.set_status(StatusCode.ERROR)
    span.set_attribute("error.type", error_type)


@contextmanager
def _working(span: Span) -> Iterator[None]:
    token = contexts.attach(trace.set_span_in_context(span))
    try:
        yield
    except BaseException as error:
        failed(span, type(error).__name__)
        raise
    finally:
        contexts.detach(token)
        span.end()


def _sampled(traceparent: str) -> bool:
    return traceparent[-1] in _SAMPLED


def _context(traceparent: str) -> SpanContext:
    flags = TraceFlags(int(traceparent[53:55], 16))
    return SpanContext(int(traceparent[3:35], 16), int(traceparent[36:52], 16), is_remote=True, trace_flags=flags)


def _parent(traceparent: str | None) -> contexts.Context:
    """Without a parent an empty context, whatever this task works in."""
    empty = contexts.Context()
    return empty if traceparent is None else trace.set_span_in_context(NonRecordingSpan(_context(traceparent)), empty)


def _text(found: SpanContext) -> str:
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"
