"""Telemetry: metrics in one catalogue, traces, logs as one JSON object a line with a machine-readable action.

Invariant: every metric is declared in `metrics` and nowhere else; neither labels nor log records carry memory content,
and no label names a tenant, a scope or a principal (PAMSPEC P195).
"""

from pamspec_common.telemetry import metrics, tracing
from pamspec_common.telemetry.instruments import begin, catalogue, render_metrics, setup_metrics
from pamspec_common.telemetry.logs import setup_logging

__all__ = ["begin", "catalogue", "metrics", "render_metrics", "setup_logging", "setup_metrics", "tracing"]
