"""What metrics are made of: each declared with its labels and the services that have it, exposed at /metrics.

Counters and gauges are OpenTelemetry instruments. What is counted for each request is counted in a dictionary and read
when it is exposed, since a call of an instrument costs more than a request's share of the door. A label has values
that are listed, or such as the deployment bounds (partitions, operations of the contract, statuses).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

SERVICES = (
    "gateway",
    "write",
    "relay",
    "query",
    "subscription",
    "delegation",
    "indexing",
    "retention_sweeper",
)
OPEN: tuple[str, ...] = ()
"""Values of a label that the deployment or the contract bounds, and nobody lists here."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1.0, 4.0, 16.0, 64.0, 256.0, 1000.0)


_Zero = Callable[[Mapping[str, str]], object]
"""Begins a series at zero."""


@dataclass(frozen=True)
class Metric:
    """One metric as it is exposed."""

    name: str
    kind: str
    """counter, gauge or histogram."""
    description: str
    services: tuple[str, ...]
    labels: Mapping[str, tuple[str, ...]]
    zero: _Zero | None
    """None for gauges: they appear with their first measurement."""


_meter = metrics.get_meter("pamspec")
_catalogue: dict[str, Metric] = {}


def catalogue() -> Mapping[str, Metric]:
    """Every metric by its exposed name."""
    return _catalogue


def begin(service: str, partition: int | None = None) -> None:
    """Let the counters and histograms of a service begin at zero, or those of a partition that it now owns.

    A series that appears with its first event hides that event from a rate.
    """
    given = {"service": service} if partition is None else {"service": service, "partition": str(partition)}
    for metric in _catalogue.values():
        if metric.zero is None or service not in metric.services:
            continue
        if ("partition" in metric.labels) != (partition is not None):
            continue
        values = [(given[name],) if name in given else listed for name, listed in metric.labels.items()]
        for chosen in product(*values):
            metric.zero(dict(zip(metric.labels, chosen, strict=True)))


def _declare(
    name: str, kind: str, description: str, of: Iterable[str], labels: Mapping[str, tuple[str, ...]], zero: _Zero | None
) -> None:
    assert name not in _catalogue
    _catalogue[name] = Metric(name, kind, description, tuple(of), labels, zero)


def counter(name: str, description: str, *of: str, **labels: tuple[str, ...]) -> metrics.Counter:
    """A counter, exposed as `<name>_total`."""
    made = _meter.create_counter(name, description=description)
    _declare(f"{name}_total", "counter", description, of, labels, lambda chosen: made.add(0, dict(chosen)))
    return made


def gauge(name: str, description: str, *of: str, **labels: tuple[str, ...]) -> metrics._Gauge:
    """A gauge: the last measurement."""
    _declare(name, "gauge", description, of, labels, None)
    return _meter.create_gauge(name, description=description)


def level(name: str, description: str, *of: str, **labels: tuple[str, ...]) -> metrics.UpDownCounter:
    """A gauge that is counted up and down."""
    made = _meter.create_up_down_counter(name, description=description)
    _declare(name, "gauge", description, of, labels, lambda chosen: made.add(0, dict(chosen)))
    return made


class Tally:
    """A counter for hot paths: counted in a dictionary, read when it is exposed."""

    def __init__(self, name: str, description: str, *of: str, **labels: tuple[str, ...]) -> None:
        self._labels = tuple(labels)
        self._counts: Counter[tuple[str, ...]] = Counter()
        _meter.create_observable_counter(name, [self._observe], description=description)
        _declare(f"{name}_total", "counter", description, of, labels, self._zero)

    def add(self, *values: str, amount: int = 1) -> None:
        """Count once more under these values of the labels."""
        self._counts[values] += amount

    def _zero(self, labels: Mapping[str, str]) -> None:
        self._counts[tuple(labels.values())] += 0

    def _observe(self, _: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        return [
            metrics.Observation(count, dict(zip(self._labels, values, strict=True)))
            for values, count in self._counts.items()
        ]


class Distribution(Collector):
    """A histogram for hot paths: a value costs a search in its bounds."""

    def __init__(
        self, name: str, description: str, *of: str, bounds: tuple[float, ...] = SECONDS, **labels: tuple[str, ...]
    ) -> None:
        self._name, self._description, self._bounds = name, description, bounds
        self._labels = tuple(labels)
        self._series: dict[tuple[str, ...], list[float]] = {}
        _distributions.append(self)
        _declare(name, "histogram", description, of, labels, lambda chosen: self._zero(tuple(chosen.values())))

    def observe(self, value: float, *values: str) -> None:
        """Count a value under these values of the labels."""
        series = self._series.get(values) or self._zero(values)
        series[bisect_left(self._bounds, value)] += 1
        series[-1] += value

    def _zero(self, values: tuple[str, ...]) -> list[float]:
        return self._series.setdefault(values, [0.0] * (len(self._bounds) + 2))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The buckets as they are exposed."""
        family = HistogramMetricFamily(self._name, self._description, labels=self._labels)
        for values, series in list(self._series.items()):
            total, buckets = 0.0, []
            for bound, count in zip((*map(str, self._bounds), "+Inf"), series, strict=False):
                total += count
                buckets.append((bound, total))
            family.add_metric(list(values), buckets, series[-1])
        if family.samples:
            yield family


_distributions: list[Distribution] = []


def setup_metrics() -> None:
    """Install the meter provider; the instruments then count into /metrics. Safe to call twice."""
    if not isinstance(metrics.get_meter_provider(), MeterProvider):
        reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False)
        metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
        for one in _distributions:
            REGISTRY.register(one)


def render_metrics() -> tuple[bytes, str]:
    """The Prometheus exposition and its content type."""
    return generate_latest(REGISTRY), CONTENT_TYPE_LATEST
