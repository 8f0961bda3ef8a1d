"""The catalogue of metrics against what each process exposes, in both directions, with labels that are bounded."""

import re
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from pamspec_common import contracts
from pamspec_common.telemetry import catalogue
from pamspec_common.telemetry.instruments import SERVICES, Metric
from tests.integration.harness import Fleet, until
from tests.integration.plain_http import Http, in_own_scope

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "metrics.md"
_LINE = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]+) \| ([^|]*) \| [^|]+ \|$", re.MULTILINE)
_WORD = re.compile(r"[a-z0-9_]{1,48}")


def test_the_page_is_the_catalogue() -> None:
    lines = {name: (kind, services, labels) for name, kind, services, labels in _LINE.findall(PAGE.read_text())}
    assert sorted(lines) == sorted(catalogue())
    for name, metric in catalogue().items():
        kind, services, labels = lines[name]
        assert kind == metric.kind, name
        named = SERVICES if services == "every service" else tuple(services.split(", "))
        assert sorted(named) == sorted(metric.services), name
        assert re.findall(r"`(\w+)`", labels) == list(metric.labels), name


async def exposed(url: str) -> dict[str, Family]:
    """What a process shows of its own, under the names of the catalogue."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        families = list(text_string_to_metric_families(await answer.text()))
    named = {f"{one.name}_total" if one.type == "counter" else one.name: one for one in families}
    return {name: one for name, one in named.items() if not name.startswith(("python_", "process_"))}


async def use(http: Http) -> None:
    """What makes every metric appear whose labels are known only then."""
    made = await http.claim({"n": 1})
    await http.update(made, {"n": 2})
    late = {"object_id": made["object_id"], "expected_version_id": made["version_id"], "canonical_content": {"n": 3}}
    answer = await http.call("update", {**late, "provenance": {"activity": "test"}})
    assert answer.code == "version_conflict"
    # Over a convenience, which the framework serves: it has metrics of its own.
    url = f"{http.fleet['gateway'].url}/v1/scopes"
    async with http.session.get(url, headers=http.fleet.headers) as scopes:
        assert scopes.status == 200


@pytest.mark.timeout(180)
async def test_each_process_exposes_its_part_of_the_catalogue(fleet: Fleet) -> None:
    async with in_own_scope(fleet) as http:
        await use(http)
    found: dict[str, dict[str, Family]] = {}
    for service in SERVICES:
        own = {name for name, metric in catalogue().items() if service in metric.services}

        async def there(service: str = service, own: set[str] = own) -> bool:
            found[service] = await exposed(fleet[service].url)
            return own <= found[service].keys()

        try:
            await until(there, 30, f"{service} exposes its metrics", every_s=0.2)
        except AssertionError as error:
            error.add_note(f"missing: {sorted(own - found[service].keys())}")
            raise
        assert not found[service].keys() - own, f"{service} exposes what is not documented as its own"
        for name, family in found[service].items():
            assert family.type == catalogue()[name].kind, name
            for sample in family.samples:
                check_labels(catalogue()[name], {key: text for key, text in sample.labels.items() if key != "le"})


def check_labels(metric: Metric, labels: Mapping[str, str]) -> None:
    """Those of the catalogue, with values that it lists or that the deployment bounds."""
    assert labels.keys() == metric.labels.keys(), metric.name
    for label, value in labels.items():
        listed = metric.labels[label]
        if listed:
            assert value in listed, (metric.name, label, value)
        elif label == "operation":
            assert value in {*contracts.operations(), "stream"}, (metric.name, value)
        elif label in ("partition", "status"):
            assert value.isdigit(), (metric.name, label, value)
        else:
            assert _WORD.fullmatch(value), (metric.name, label, value)
