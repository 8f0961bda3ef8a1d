"""The script that installs and upgrades: in its order, and not past a missing secret or a migration that failed."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.kubernetes.overlays import SERVICES
from tools.kubernetes.rendering import rendered

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = """#!/bin/sh
if [ "$1" = kustomize ]; then cat "$BUILT"; exit 0; fi
echo "$*" >>"$ASKED"
case "$*" in *"$REFUSED"*) exit 1 ;; *"get job migrate"*) echo "$STATE" ;; esac
cat >/dev/null
"""


def rollout(
    tmp_path: Path, refused: str = "nothing", state: str = "SuccessCriteriaMet Complete"
) -> tuple[int, list[str], str]:
    """The exit code, what kubectl was asked for in turn, and what was said on standard error."""
    told, asked = tmp_path / "kubectl", tmp_path / "asked"
    told.write_text(STAND_IN, encoding="utf-8")
    told.chmod(0o755)
    done = subprocess.run(
        [str(ROOT / "deploy/k8s/rollout"), "overlays/production"],
        env=os.environ
        | {
            "KUBECTL": str(told),
            "ASKED": str(asked),
            "BUILT": str(rendered("production")),
            "REFUSED": refused,
            "STATE": state,
        },
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    return done.returncode, asked.read_text(encoding="utf-8").splitlines(), done.stderr


def test_prepare_then_migrate_to_its_end_then_serve(tmp_path: Path) -> None:
    code, asked, _ = rollout(tmp_path)
    assert code == 0
    steps = [line for line in asked if "get secret" not in line]
    assert steps[:5] == [
        "apply --selector pamspec.dev/phase=prepare -f -",
        "-n pamspec delete job migrate --ignore-not-found",
        "apply --selector pamspec.dev/phase=migrate -f -",
        """-n pamspec get job migrate -o jsonpath={.status.conditions[?(@.status=="True")].type}""",
        "apply --selector pamspec.dev/phase=serve -f -",
    ]
    waited = {line.rpartition("deployment/")[2] for line in steps[5:]}
    assert waited == set(SERVICES)
    looked = {line.rpartition(" ")[2] for line in asked if "get secret" in line}
    assert {f"pamspec-{service}" for service in SERVICES} <= looked


@pytest.mark.parametrize("refused", ["get secret pamspec-relay", "phase=prepare", "phase=migrate"])
def test_it_goes_no_further_than_what_failed(tmp_path: Path, refused: str) -> None:
    code, asked, said = rollout(tmp_path, refused)
    assert code != 0
    assert refused in asked[-1]
    if "secret" in refused:
        assert "deploy/k8s/secrets" in said


def test_services_stay_as_they_are_when_the_migrations_fail(tmp_path: Path) -> None:
    code, asked, said = rollout(tmp_path, state="FailureTarget Failed")
    assert code == 1
    assert asked[-1] == "-n pamspec logs job/migrate"
    assert "every service is as it was" in said
