"""The built overlays of deploy/k8s as objects, and the traffic that their network policies let through."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from pamspec_cli.deployment import SERVICES as _SERVICES
from tools.kubernetes.rendering import OVERLAYS, rendered

Object = Mapping[str, Any]

SERVICES = tuple(service.replace("_", "-") for service in _SERVICES)
WORKLOADS = ("Deployment", "StatefulSet", "Job")
POSTGRES = {"app.kubernetes.io/name": "postgres", "cnpg.io/cluster": "postgres"}
"""Labels of the pods that an operator runs."""


@dataclass(frozen=True)
class Overlay:
    """One built overlay."""

    name: str
    objects: tuple[Object, ...]

    def of_kind(self, *kinds: str) -> list[Object]:
        """The objects of these kinds."""
        return [one for one in self.objects if one["kind"] in kinds]

    def one(self, kind: str, name: str) -> Object:
        """The only object of this kind and name."""
        (found,) = [one for one in self.of_kind(kind) if one["metadata"]["name"] == name]
        return found

    def workloads(self) -> dict[str, Object]:
        """What runs pods, by its name."""
        return {one["metadata"]["name"]: one for one in self.of_kind(*WORKLOADS)}

    def service(self, name: str) -> Object:
        """The Deployment of a service."""
        return self.one("Deployment", name)

    def file(self, name: str) -> str:
        """The text of the only ConfigMap with such a file."""
        (found,) = [one["data"][name] for one in self.of_kind("ConfigMap") if name in one["data"]]
        return str(found)

    def settings(self) -> dict[str, str]:
        """The variables that every service is told."""
        (found,) = [one["data"] for one in self.of_kind("ConfigMap") if "PAMSPEC_PORT" in one["data"]]
        return dict(found)

    def flows(self) -> set[tuple[str, str, int]]:
        """Who may connect to whom on which port, where the policies of both ends let it through; by the pods' names."""
        pods = {name: pod(one)["metadata"]["labels"] for name, one in self.workloads().items()} | {"postgres": POSTGRES}
        return {
            (source, target, port)
            for source, mine in pods.items()
            for target, theirs in pods.items()
            for port in self._open(mine, theirs, "egress", "to") & self._open(theirs, mine, "ingress", "from")
        }

    def _open(self, mine: Mapping[str, str], theirs: Mapping[str, str], rules: str, peers: str) -> set[int]:
        """Ports that policies of pods with the labels `mine` open to or from pods of this namespace."""
        found: set[int] = set()
        for policy in self.of_kind("NetworkPolicy"):
            if not selects(policy["spec"]["podSelector"], mine):
                continue
            for rule in policy["spec"].get(rules, ()):
                inside = [peer for peer in rule.get(peers, ()) if set(peer) == {"podSelector"}]
                if peers not in rule or any(selects(peer["podSelector"], theirs) for peer in inside):
                    found |= {port["port"] for port in rule["ports"]}
        return found


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector takes an object with these labels."""
    if any(labels.get(name) != value for name, value in selector.get("matchLabels", {}).items()):
        return False
    for expression in selector.get("matchExpressions", ()):
        assert expression["operator"] == "In"
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return True


def pod(workload: Object) -> Mapping[str, Any]:
    """The template of a workload's pods."""
    template: Mapping[str, Any] = workload["spec"]["template"]
    return template


def containers(workload: Object) -> list[Mapping[str, Any]]:
    """The containers of a workload's pods, those of their start too."""
    spec = pod(workload)["spec"]
    return [*spec.get("initContainers", ()), *spec["containers"]]


def references(value: Any) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Every Secret and ConfigMap that a pod names: the kind, the name, and the keys that it needs."""
    if isinstance(value, list):
        for found in value:
            yield from references(found)
    if isinstance(value, Mapping):
        for key, found in value.items():
            if key in ("secret", "configMap", "secretRef", "configMapRef", "secretKeyRef", "configMapKeyRef"):
                kind = "Secret" if key.startswith("secret") else "ConfigMap"
                items = [item["key"] for item in found.get("items", [found] if "key" in found else ())]
                yield kind, found.get("secretName") or found["name"], tuple(items)
            yield from references(found)


@functools.cache
def overlay(name: str) -> Overlay:
    """A built overlay, read once."""
    text = rendered(name).read_text(encoding="utf-8")
    return Overlay(
        name, tuple(one for one in yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if one)
    )


ALL = [overlay(name) for name in OVERLAYS]
