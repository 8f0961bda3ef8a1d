"""Images as the Dockerfile describes them: one for each service, told apart by labels, without root, from the lock."""

import re
from pathlib import Path

import pytest

from pamspec_cli.deployment import SERVICES

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
IMAGES = [service.replace("_", "-") for service in SERVICES]


def stage(name: str) -> str:
    """The lines of one stage."""
    return re.split(rf"^FROM \S+ AS {re.escape(name)}$", DOCKERFILE, flags=re.MULTILINE)[1].split("\nFROM ", 1)[0]


@pytest.mark.parametrize("image", [*IMAGES, "tools"])
def test_each_image_says_what_it_is_and_runs_without_root(image: str) -> None:
    text = stage(image)
    assert f'LABEL org.opencontainers.image.title="pamspec/{image}"' in text
    users = re.findall(r"^USER (\S+)$", stage("runtime") + text, re.MULTILINE)
    assert users[-1] == "10001"
    package = "cli" if image == "tools" else image
    install = stage(f"build-{image}")
    assert f"sync --frozen --no-dev --no-editable --package pamspec-{package}" in install
    assert f"COPY --from=build-{image} /app /app" in text


def test_labels_name_version_revision_and_base() -> None:
    text = stage("runtime")
    package = (ROOT / "libs/pamspec_cli/pyproject.toml").read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(.*)"$', package, re.MULTILINE)
    assert f'org.opencontainers.image.version="{version}"' in text
    assert "org.opencontainers.image.revision=$REVISION" in text
    (base,) = re.findall(r"^FROM (\S+) AS runtime$", DOCKERFILE, re.MULTILINE)
    assert f'org.opencontainers.image.base.name="docker.io/library/{base}"' in text


def test_a_list_of_parts_is_made_for_each_image() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (listed,) = re.findall(r"for image in (.*); do", makefile)
    assert sorted(listed.split()) == sorted([*IMAGES, "cli"])
