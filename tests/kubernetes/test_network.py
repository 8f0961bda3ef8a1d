"""Nothing may connect but what has to: the policies against the calls that the services really make."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_settings import BaseSettings

from tests.kubernetes.overlays import POSTGRES, SERVICES, Overlay, containers, pod, selects
from tests.test_settings_page import SECTIONS

CALLS: Mapping[str, tuple[str, ...]] = {
    "gateway": ("write", "query", "subscription", "delegation", "indexing", "relay", "retention-sweeper"),
    "query": ("write", "indexing"),
    "subscription": ("write",),
    "delegation": ("write",),
    "indexing": ("write",),
    "retention-sweeper": ("write",),
    "write": (),
    "relay": (),
}
WITHOUT_BUS = ("retention-sweeper",)
TITLES = {
    "gateway": "The gateway",
    "write": "The write service",
    "relay": "The relay",
    "query": "The query service",
    "subscription": "The subscription service",
    "delegation": "The delegation service",
    "indexing": "The indexing service",
    "retention-sweeper": "The retention sweeper",
}
OUTSIDE = {
    53: "names",
    443: "https",
    6443: "API server",
    8443: "webhooks",
    8000: "operator",
    9187: "operator's metrics",
}


def settings_of(service: str) -> type[BaseSettings]:
    """The class of a service's settings."""
    return SECTIONS[TITLES[service]]


def rules(overlay: Overlay) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every rule of every policy, with the policy's name."""
    for policy in overlay.of_kind("NetworkPolicy"):
        for rule in (*policy["spec"].get("ingress", ()), *policy["spec"].get("egress", ())):
            yield policy["metadata"]["name"], rule


def test_the_calls_are_those_of_the_settings() -> None:
    for service in SERVICES:
        peers = {peer for peer in SERVICES if f"{peer.replace('-', '_')}_url" in settings_of(service).model_fields}
        assert peers == set(CALLS[service]), service


def test_exactly_the_needed_flows_are_open(overlay: Overlay) -> None:
    needed = {(service, peer, 8080) for service, peers in CALLS.items() for peer in peers}
    needed |= {(client, "postgres", 5432) for client in (*SERVICES, "migrate")}
    needed |= {(service, "nats", 4222) for service in SERVICES if service not in WITHOUT_BUS}
    needed |= {(service, "valkey", 6379) for service in SERVICES if "valkey_url" in settings_of(service).model_fields}
    needed |= {("nats", "nats", 6222)}
    if overlay.of_kind("Cluster"):
        needed |= {("postgres", "postgres", 5432), ("postgres", "postgres", 8000)}
    assert overlay.flows() == needed


def test_who_is_not_named_is_shut_in_and_out(overlay: Overlay) -> None:
    shut = overlay.one("NetworkPolicy", "default-deny")["spec"]
    assert shut == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for policy in overlay.of_kind("NetworkPolicy"):
        closed = [kind for kind in ("ingress", "egress") if kind in policy["spec"]]
        assert {kind.lower() for kind in policy["spec"]["policyTypes"]} >= set(closed)


def test_every_policy_is_of_pods_that_are_there(overlay: Overlay) -> None:
    pods = [pod(one)["metadata"]["labels"] for one in overlay.workloads().values()] + [POSTGRES]
    selectors = [
        (policy["metadata"]["name"], policy["spec"]["podSelector"]) for policy in overlay.of_kind("NetworkPolicy")
    ]
    for name, rule in rules(overlay):
        peers = [*rule.get("to", ()), *rule.get("from", ())]
        selectors += [(name, peer["podSelector"]) for peer in peers if set(peer) == {"podSelector"}]
    for name, selector in selectors:
        assert any(selects(selector, labels) for labels in pods), (name, selector)


def test_every_port_of_a_policy_is_a_port_of_a_container(overlay: Overlay) -> None:
    found = [one for workload in overlay.workloads().values() for one in containers(workload)]
    ports = {port["containerPort"] for one in found for port in one.get("ports", ())}
    if overlay.of_kind("Cluster"):
        ports.add(5432)
    for name, rule in rules(overlay):
        assert rule["ports"], f"{name} opens every port"
        for port in rule["ports"]:
            assert port["port"] in ports | set(OUTSIDE), name


def test_doors_and_metrics_are_open_to_marked_namespaces_alone(overlay: Overlay) -> None:
    opened: dict[str, set[str]] = {}
    for policy in overlay.of_kind("NetworkPolicy"):
        for rule in policy["spec"].get("ingress", ()):
            assert rule.get("from"), f"{policy['metadata']['name']} lets everybody in"
            for peer in rule["from"]:
                if "namespaceSelector" in peer:
                    (label,) = peer["namespaceSelector"]["matchLabels"]
                    opened.setdefault(label, set()).add(policy["metadata"]["name"])
    assert opened.pop("pamspec.dev/clients") == {"gateway", "nats"}
    assert opened.pop("pamspec.dev/monitoring") - {"postgres"} == set(SERVICES)
    assert set(opened) <= {"kubernetes.io/metadata.name"}


def test_webhooks_reach_the_public_internet_alone(overlay: Overlay) -> None:
    private = {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "127.0.0.0/8", "100.64.0.0/10"}
    blocks = [
        (name, peer["ipBlock"]) for name, rule in rules(overlay) for peer in rule.get("to", ()) if "ipBlock" in peer
    ]
    assert {name for name, _ in blocks} == {"subscription"}
    assert [set(block["except"]) for _, block in blocks if block["cidr"] == "0.0.0.0/0"] == [private]
