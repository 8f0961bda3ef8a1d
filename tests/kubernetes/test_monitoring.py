"""Alerts, dashboards and autoscalers ask for what services expose, by labels that it has; each alert is explained."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pamspec_common.telemetry import catalogue
from tests.kubernetes.overlays import SERVICES, Overlay, overlay
from tests.test_settings_page import SECTIONS

ROOT = Path(__file__).resolve().parents[2]
DASHBOARDS = sorted((ROOT / "deploy/k8s/components/monitoring/dashboards").glob("*.json"))
OF_OTHERS = {
    "up",
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
    "kube_statefulset_replicas",
    "kube_statefulset_status_replicas_ready",
}
OF_THE_TARGET = {"namespace", "job", "pod", "instance"}
METRIC = re.compile(r"\b((?:pamspec_|memory_|process_|kube_)\w+|up)\{([^}]*)\}")
LABEL = re.compile(r'(\w+)(?:=~|!=|!~|=)"([^"]*)"')


def used(expression: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The metrics of an expression, each with the labels that it is chosen by."""
    for name, selector in METRIC.findall(expression):
        yield name, dict(LABEL.findall(selector))


def expressions(found: Overlay) -> dict[str, str]:
    """What rules, dashboards and autoscalers ask, by where it stands."""
    asked: dict[str, str] = {}
    for rule in found.of_kind("PrometheusRule"):
        asked |= {one["alert"]: one["expr"] for group in rule["spec"]["groups"] for one in group["rules"]}
    for scaler in found.of_kind("ScaledObject"):
        (trigger,) = scaler["spec"]["triggers"]
        asked[f"scaler {scaler['metadata']['name']}"] = trigger["metadata"]["query"]
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text(encoding="utf-8"))["panels"]:
            for target in panel["targets"]:
                asked[f"{file.name}: {panel['title']} {target['refId']}"] = target["expr"]
    return asked


ASKED = expressions(overlay("high-availability"))


@pytest.mark.parametrize("where", ASKED)
def test_only_what_services_expose_is_asked_for(where: str) -> None:
    asked = list(used(ASKED[where]))
    assert asked, "it names no metric"
    assert ASKED[where].count("pamspec_") == sum(name.startswith("pamspec_") for name, _ in asked)
    grouped = set(re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", ASKED[where]))))
    for name, labels in asked:
        assert "namespace" in labels, f"{name}: another deployment's would count"
        if name in OF_OTHERS:
            continue
        metric = catalogue().get(name) or catalogue().get(re.sub(r"_(bucket|sum|count)$", "", name))
        assert metric is not None, f"no service exposes {name}"
        assert set(labels) | grouped <= {*metric.labels, *OF_THE_TARGET, "le"}, name
        assert labels.get("job", metric.services[0]).replace("-", "_") in metric.services, name
        for label, value in labels.items():
            if listed := metric.labels.get(label):
                assert set(value.split("|")) <= set(listed), f"{name} has no such {label}"


def test_every_service_is_looked_at(overlay: Overlay) -> None:
    for monitor in overlay.of_kind("ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        found = [one for one in overlay.of_kind("Service") if wanted <= one["metadata"]["labels"].items()]
        assert sorted(one["metadata"]["name"] for one in found) == sorted(SERVICES)
        for one in found:
            assert one["metadata"]["labels"][monitor["spec"]["jobLabel"]] == one["metadata"]["name"]
            assert [port["name"] for port in one["spec"]["ports"]] == ["http"]
    for name in ("PamspecServiceDown", "PamspecServiceMissing"):
        assert all(service in ASKED[name] for service in SERVICES)


def test_every_alert_has_a_section_and_every_section_an_alert() -> None:
    page = (ROOT / "docs/operations/alerts.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (Pamspec\w+)$", page, re.MULTILINE)
    (rule,) = overlay("production").of_kind("PrometheusRule")
    alerts = [one for group in rule["spec"]["groups"] for one in group["rules"]]
    assert sections == [one["alert"] for one in alerts]
    for one in alerts:
        assert one["labels"]["severity"] in ("critical", "warning")
        assert one["annotations"]["runbook_url"] == f"docs/operations/alerts.md#{one['alert'].lower()}"
        text = page.split(f"## {one['alert']}\n", 1)[1].split("\n## ", 1)[0]
        for what in ("**Means**", "**Look**", "**Do**"):
            assert what in text, one["alert"]


def test_actions_and_settings_that_the_page_of_alerts_names_are_there() -> None:
    page = (ROOT / "docs/operations/alerts.md").read_text(encoding="utf-8")
    actions = set(re.findall(r'"action":"(\w+)"', page)) | {"service_failed"}
    listed = (ROOT / "docs/operations/log-actions.md").read_text(encoding="utf-8")
    assert {action for action in actions if f"`{action}`" not in listed} == set()
    known = {name for settings in SECTIONS.values() for name in settings.model_fields}
    named = set(re.findall(r"`PAMSPEC_([A-Z_]+)`", page)) - {"URL"}
    assert {name for name in named if name.lower() not in known} == set()
