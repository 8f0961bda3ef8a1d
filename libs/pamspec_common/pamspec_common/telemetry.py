"""Telemetry: the catalogue of metrics, and logs as one JSON object a line with a machine-readable action.

Metrics are OpenTelemetry instruments, exposed in Prometheus form at /metrics. Invariant: every instrument is named
here and nowhere else; neither metric labels nor log records carry memory content (PAMSPEC P195).
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

import orjson
from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

_EXTRA = ("action", "service", "task", "operation", "partition", "scope_key", "sequence", "error", "count", "path")


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({name: str(getattr(record, name)) for name in _EXTRA if hasattr(record, name)})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


def setup_logging(level: str) -> None:
    """Send every log record to standard error as one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def setup_metrics() -> None:
    """Install the meter provider; the instruments below then count into /metrics. Safe to call twice."""
    if not isinstance(metrics.get_meter_provider(), MeterProvider):
        metrics.set_meter_provider(MeterProvider(metric_readers=[PrometheusMetricReader()]))


def render_metrics() -> tuple[bytes, str]:
    """The Prometheus exposition and its content type."""
    return generate_latest(REGISTRY), CONTENT_TYPE_LATEST


_meter = metrics.get_meter("pamspec")


class Tally:
    """A counter for hot paths: counted in a dictionary, read when it is exported."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self._labels = labels
        self._counts: Counter[tuple[str, ...]] = Counter()
        _meter.create_observable_counter(name, [self._observe], description=description)

    def add(self, *values: str, amount: int = 1) -> None:
        """Count once more under these values of the labels."""
        self._counts[values] += amount

    def _observe(self, _: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        return [
            metrics.Observation(count, dict(zip(self._labels, values, strict=True)))
            for values, count in self._counts.items()
        ]


COMMANDS = Tally("pamspec_write_commands", "Commands answered, by outcome", "operation", "outcome")
DENIALS = Tally("pamspec_denials", "Refusals of access, by what became of their entries", "service", "outcome")
BATCHES = _meter.create_counter("pamspec_write_batches", description="Group commits, by result")
BATCH_SECONDS = _meter.create_histogram("pamspec_write_batch_seconds", unit="s", description="Time of a group commit")
VERSION_CONFLICTS = _meter.create_counter("memory_version_conflicts", description="Commands refused as stale")
OUTBOX_DEPTH = _meter.create_gauge("pamspec_outbox_depth", description="Rows waiting for the bus, by partition")
OUTBOX_AGE = _meter.create_gauge("pamspec_outbox_age_seconds", unit="s", description="Age of the oldest waiting row")
RELAYED = _meter.create_counter("pamspec_relay_events", description="Events stored in the stream, by partition")
RELAY_RESYNCS = _meter.create_counter("pamspec_relay_resyncs", description="Windows dropped and read back")
RELAY_REPAIRED = _meter.create_counter("pamspec_relay_repaired", description="Events refilled from the ledger")
RELAY_ALARMS = _meter.create_counter("pamspec_relay_alarms", description="What an operator should look at, by kind")
CHECKPOINTS = _meter.create_counter("pamspec_checkpoints", description="Signed checkpoints of ledgers, by partition")
RELAY_OWNED = _meter.create_gauge("pamspec_relay_owned", description="1 where this process owns the partition")
CONSUMED = _meter.create_counter("pamspec_consumer_events", description="Ledger entries that took effect, by service")
CONSUMER_DROPPED = _meter.create_counter("pamspec_consumer_dropped", description="Messages of the bus without news")
CONSUMER_REFILLED = _meter.create_counter("pamspec_consumer_refilled", description="Entries read from the ledger")
CONSUMER_PARKED = _meter.create_counter("pamspec_consumer_parked", description="Entries that an effect could not take")
CONSUMER_LAG = _meter.create_gauge("pamspec_consumer_lag", description="Entries not yet taken in, by partition")
INDEX_LAG = _meter.create_gauge("pamspec_index_lag_seconds", unit="s", description="Age of the oldest unindexed entry")
INDEX_LAG_EVENTS = _meter.create_gauge("pamspec_index_lag_events", description="Entries that are not indexed yet")
INDEXED = _meter.create_counter("pamspec_index_objects", description="Objects indexed or removed, by index")
INDEX_TRUNCATED = _meter.create_counter("pamspec_index_truncated", description="Objects of which a part is indexed")
INDEX_UNREADABLE = _meter.create_counter("pamspec_index_unreadable", description="Contents that could not be read")
INDEX_JOB_OBJECTS = _meter.create_counter("pamspec_index_job_objects", description="Objects that jobs went through")
RETENTION_DUE = _meter.create_gauge("pamspec_retention_due", description="Objects whose step is due and not done")
RETENTION_LAG = _meter.create_gauge("pamspec_retention_lag_seconds", description="Age of the oldest step that is due")
RETENTION_STEPS = _meter.create_counter("pamspec_retention_steps", description="Steps, by action and outcome")
CHANNELS = _meter.create_up_down_counter("pamspec_subscription_channels", description="Open channels, by kind")
DELIVERED = _meter.create_counter("pamspec_subscription_events", description="Events delivered, by channel kind")
WEBHOOK_ATTEMPTS = _meter.create_counter("pamspec_webhook_attempts", description="Webhook deliveries, by outcome")
SUBSCRIPTION_LAG = _meter.create_gauge("pamspec_subscription_lag", description="Largest distance of a live cursor")
UNDER_WAY = _meter.create_gauge("pamspec_gateway_under_way", description="Under way in the gateway now, by kind")
ERASURES_OPEN = _meter.create_gauge("pamspec_erasures_open", description="Erasures whose receipt is still open")
ERASURES_FAILING = _meter.create_gauge("pamspec_erasures_failing", description="Erasures with something left")
ERASURE_CHECKS = _meter.create_counter("pamspec_erasure_checks", description="Verifications of erasures, by result")
REQUESTS = _meter.create_counter("pamspec_gateway_requests", description="Requests, by operation and status")
LIMITED = _meter.create_counter("pamspec_gateway_limited", description="Requests refused by a limit, by its name")
BUDGET_LEFT = _meter.create_gauge("pamspec_gateway_budget_left", description="Smallest share left of a rate's burst")
LIMITS_SHARED = _meter.create_gauge("pamspec_gateway_limits_shared", description="1 while gateways share their limits")
