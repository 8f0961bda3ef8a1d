"""Every service on Kubernetes: there, probed, bounded, restricted, and given the time to stop in order."""

import re
from pathlib import Path

import pytest

from tests.kubernetes.overlays import SERVICES, Overlay, containers, pod, selects
from tools.kubernetes.rendering import OVERLAYS, header, rendered

ROOT = Path(__file__).resolve().parents[2]
OF_OTHERS = {"nats", "valkey/valkey", "pgvector/pgvector"}
DRAINS = 3
"""Channels, requests and background work may take the drain time one after the other."""


@pytest.mark.parametrize("name", OVERLAYS)
def test_what_is_kept_was_built_from_the_sources_of_now(name: str) -> None:
    with rendered(name).open(encoding="utf-8") as file:
        assert file.readline() == header(), "run  make k8s"


def test_every_service_runs_and_nothing_else_calls_itself_one(overlay: Overlay) -> None:
    kinds = {
        one["metadata"]["name"]: one["metadata"]["labels"]["pamspec.dev/kind"] for one in overlay.of_kind("Deployment")
    }
    assert sorted(name for name, kind in kinds.items() if kind == "service") == sorted(SERVICES)
    assert overlay.workloads()["migrate"]["kind"] == "Job"


def test_images_are_targets_of_the_dockerfile_in_the_version_of_the_packages(overlay: Overlay) -> None:
    targets = set(re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE))
    package = (ROOT / "libs/pamspec_cli/pyproject.toml").read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(.*)"$', package, re.MULTILINE)
    composed = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    for name, workload in overlay.workloads().items():
        for container in containers(workload):
            image, _, tag = container["image"].rpartition(":")
            if image in OF_OTHERS:
                assert f"image: {image}:{tag}\n" in composed
                continue
            assert image.removeprefix("registry.example.org/") == f"pamspec/{'tools' if name == 'migrate' else name}"
            assert image.rpartition("/")[2] in targets
            assert tag == version


def test_every_container_is_restricted_and_bounded(overlay: Overlay) -> None:
    for name, workload in overlay.workloads().items():
        spec = pod(workload)["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] >= 10_000, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["enableServiceLinks"] is False, f"{name}: a link would be read as a setting"
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert not any("hostPath" in volume for volume in spec["volumes"]), name
        for container in containers(workload):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert set(container["resources"]) == {"requests", "limits"}, name
            for bounds in container["resources"].values():
                assert set(bounds) == {"cpu", "memory"}, name


def test_every_volume_is_mounted_and_every_mount_a_volume(overlay: Overlay) -> None:
    for name, workload in overlay.workloads().items():
        claims = {one["metadata"]["name"] for one in workload["spec"].get("volumeClaimTemplates", ())}
        volumes = {volume["name"] for volume in pod(workload)["spec"]["volumes"]} | claims
        mounts = {mount["name"] for container in containers(workload) for mount in container["volumeMounts"]}
        assert mounts == volumes, name


def test_three_probes_with_three_meanings(overlay: Overlay) -> None:
    for name in SERVICES:
        (container,) = containers(overlay.service(name))
        startup, ready, alive = (container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness"))
        assert [probe["httpGet"]["path"] for probe in (startup, ready, alive)] == ["/healthz", "/readyz", "/healthz"]
        assert {probe["httpGet"]["port"] for probe in (startup, ready, alive)} == {"http"}
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 120, "a slow start is no defect"
        assert alive["periodSeconds"] * alive["failureThreshold"] >= 60, "a busy moment is no defect"
        assert ready["periodSeconds"] * ready["failureThreshold"] <= 10
    for name, workload in overlay.workloads().items():
        for container in containers(workload) if workload["kind"] != "Job" else ():
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container), name


def test_a_stop_has_the_time_that_it_may_take(overlay: Overlay) -> None:
    drain = float(overlay.settings()["PAMSPEC_DRAIN_S"])
    for name in SERVICES:
        spec = pod(overlay.service(name))["spec"]
        before = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert before >= 5, "endpoints forget a pod only after a moment"
        assert spec["terminationGracePeriodSeconds"] >= before + DRAINS * drain, name


def test_the_bus_comes_and_goes_in_order(overlay: Overlay) -> None:
    spec = pod(overlay.one("StatefulSet", "nats"))["spec"]
    assert spec["containers"][0]["startupProbe"]["httpGet"]["path"] == "/healthz", "it waits for streams in line"
    text = overlay.file("nats.conf")
    (pid_file,) = re.findall(r'pid_file: "(.*)"', text)
    assert spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1] == f"-sl=ldm={pid_file}"
    bounds = [int(seconds) for seconds in re.findall(r'lame_duck_\w+: "(\d+)s"', text)]
    assert spec["terminationGracePeriodSeconds"] >= sum(bounds)


def test_a_rollout_takes_nothing_away_before_the_new_is_ready(overlay: Overlay) -> None:
    for name in SERVICES:
        assert overlay.service(name)["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_every_workload_that_stays_has_its_disruption_budget(overlay: Overlay) -> None:
    budgets = overlay.of_kind("PodDisruptionBudget")
    staying = {name: one for name, one in overlay.workloads().items() if one["kind"] != "Job"}
    for name, workload in staying.items():
        labels = pod(workload)["metadata"]["labels"]
        (budget,) = [one for one in budgets if selects(one["spec"]["selector"], labels)]
        assert budget["spec"]["maxUnavailable"] == 1, name
    assert len(budgets) == len(staying)


def test_pods_of_one_kind_are_spread(overlay: Overlay) -> None:
    for name in (*SERVICES, "nats"):
        spread = pod(overlay.workloads()[name])["spec"]["topologySpreadConstraints"]
        labels = pod(overlay.workloads()[name])["metadata"]["labels"]
        assert {one["topologyKey"] for one in spread} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
        for one in spread:
            assert selects(one["labelSelector"], labels)
            told_apart = {*one["labelSelector"]["matchLabels"], *one.get("matchLabelKeys", ())}
            assert "app.kubernetes.io/name" in told_apart, "pods of other services would count"
            forced = overlay.name == "high-availability" and one["topologyKey"] == "topology.kubernetes.io/zone"
            assert (one["whenUnsatisfiable"] == "DoNotSchedule") == forced


def test_a_selector_takes_its_own_pods_alone(overlay: Overlay) -> None:
    pods = {name: pod(one)["metadata"]["labels"] for name, one in overlay.workloads().items()}
    for name, workload in overlay.workloads().items():
        if workload["kind"] != "Job":
            assert [other for other, labels in pods.items() if selects(workload["spec"]["selector"], labels)] == [name]


def test_every_port_of_a_service_is_one_of_its_pods(overlay: Overlay) -> None:
    for service in overlay.of_kind("Service"):
        selector = {"matchLabels": service["spec"]["selector"]}
        workloads = overlay.workloads().values()
        (chosen,) = [one for one in workloads if selects(selector, pod(one)["metadata"]["labels"])]
        ports = {port["name"] for container in containers(chosen) for port in container.get("ports", ())}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def test_each_object_belongs_to_a_phase_of_the_rollout(overlay: Overlay) -> None:
    phases = {"prepare": set[str](), "migrate": set[str](), "serve": set[str]()}
    for one in overlay.objects:
        phases[one["metadata"]["labels"]["pamspec.dev/phase"]].add(f"{one['kind']} {one['metadata']['name']}")
    assert phases["migrate"] == {"Job migrate"}
    assert {f"Deployment {name}" for name in SERVICES} <= phases["serve"]
    assert {"StatefulSet nats", "Deployment valkey"} <= phases["prepare"]
    rollout = (ROOT / "deploy/k8s/rollout").read_text(encoding="utf-8")
    assert re.findall(r"^phase (\w+)$", rollout, re.MULTILINE) == list(phases)
    (listed,) = re.findall(r"^for service in (.*); do$", rollout, re.MULTILINE)
    assert sorted(listed.split()) == sorted(SERVICES)
