"""How many of each there may be: one autoscaler for each, lag up to the partitions, and PostgreSQL has room for all."""

import re
from pathlib import Path

from pamspec_common.settings import CommonSettings
from pamspec_relay.app import _CONNECTIONS_PER_PARTITION, _OTHER_CONNECTIONS
from tests.kubernetes.overlays import SERVICES, Overlay, containers

ROOT = Path(__file__).resolve().parents[2]
RESERVED = 30
"""Connections for the operator, backups and people."""


def most(overlay: Overlay, service: str) -> int:
    """How many pods of a service there may be at once, a rollout's surge included."""
    scalers = overlay.of_kind("HorizontalPodAutoscaler", "ScaledObject")
    (bound,) = [
        one["spec"].get("maxReplicas") or one["spec"]["maxReplicaCount"]
        for one in scalers
        if one["metadata"]["name"] == service
    ] or [overlay.service(service)["spec"]["replicas"]]
    return 1 + int(bound)


def test_one_scaler_for_each_and_it_alone_says_how_many(overlay: Overlay) -> None:
    scalers = overlay.of_kind("HorizontalPodAutoscaler", "ScaledObject")
    targets = [one["spec"]["scaleTargetRef"]["name"] for one in scalers]
    assert len(set(targets)) == len(targets)
    assert targets == [one["metadata"]["name"] for one in scalers]
    for service in SERVICES:
        assert ("replicas" in overlay.service(service)["spec"]) == (service not in targets), service


def test_who_follows_partitions_is_never_more_than_they(overlay: Overlay) -> None:
    partitions = int(overlay.settings()["PAMSPEC_PARTITIONS"])
    for one in overlay.of_kind("ScaledObject"):
        assert one["spec"]["maxReplicaCount"] == partitions
        assert one["spec"]["minReplicaCount"] <= partitions
    assert {one["metadata"]["name"] for one in overlay.of_kind("ScaledObject")} <= {"relay", "indexing"}


def test_nothing_that_is_for_production_runs_alone(overlay: Overlay) -> None:
    if overlay.name == "dev":
        return
    least = 3 if overlay.name == "high-availability" else 2
    for one in overlay.of_kind("HorizontalPodAutoscaler", "ScaledObject"):
        assert (one["spec"].get("minReplicas") or one["spec"]["minReplicaCount"]) >= least
    for service in SERVICES:
        assert overlay.service(service)["spec"].get("replicas", least) >= least, service
    assert overlay.one("StatefulSet", "nats")["spec"]["replicas"] == 3


def test_the_store_has_a_connection_for_everybody_at_the_most(overlay: Overlay) -> None:
    # Connections of a partition are its owner's, and it has one.
    wanted = _CONNECTIONS_PER_PARTITION * int(overlay.settings()["PAMSPEC_PARTITIONS"]) + RESERVED
    for service in SERVICES:
        each = _OTHER_CONNECTIONS if service == "relay" else CommonSettings().pool_size
        wanted += each * most(overlay, service)
    if clusters := overlay.of_kind("Cluster"):
        allowed = clusters[0]["spec"]["postgresql"]["parameters"]["max_connections"]
    else:
        (postgres,) = containers(overlay.one("StatefulSet", "postgres"))
        (allowed,) = re.findall(r"max_connections=(\d+)", " ".join(postgres["args"]))
    assert wanted <= int(allowed)


def test_requests_and_limits_are_those_of_the_page_that_says_what_was_measured(overlay: Overlay) -> None:
    page = (ROOT / "docs/operations/capacity.md").read_text(encoding="utf-8")
    row = re.compile(r"^\| ([a-z]+)[^|]* \| \d+ \| (\d+) \| [\d.]+ \| (\d+) Mi \| (\d+) ([MG])i \|$", re.MULTILINE)
    rows = {name: tuple(found) for name, *found in row.findall(page)}
    assert {service.removeprefix("retention-") for service in SERVICES} == set(rows)
    for service in SERVICES:
        (container,) = containers(overlay.service(service))
        most, request, limit, unit = rows[service.removeprefix("retention-")]
        assert container["resources"]["requests"]["memory"] == f"{request}Mi", service
        assert container["resources"]["limits"]["memory"] == f"{limit}{unit}i", service
        assert int(request) >= 1.4 * int(most), f"{service}: less than what it was seen to take, and some room"
