"""The trace that a call belongs to: the caller's own, where it uses OpenTelemetry; no span is made here.

`Event.traceparent` is the other end: the trace of the write, to go on with or to link to.
"""

from __future__ import annotations

try:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:  # the extra `telemetry` is not installed
    _propagator = None
else:
    _propagator = TraceContextTextMapPropagator()


def trace_headers() -> dict[str, str] | None:
    """W3C trace context of the span that the caller works in; None without one."""
    if _propagator is None:
        return None
    headers: dict[str, str] = {}
    _propagator.inject(headers)
    return headers or None
