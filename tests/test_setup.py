"""Setting up with pip alone, and on a Debian whose Python has no venv module; the checks of the repository."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def bare_python(tmp_path: Path) -> dict[str, str]:
    """An environment whose Python has no ensurepip until `apt-get install` was called by the user whom `id` names."""
    place = tmp_path / "bin"
    place.mkdir()
    marker = tmp_path / "installed"
    script(
        place / "python3",
        f'case "$*" in *ensurepip,*) test -e {marker} || exit 1;; esac\nexec {sys.executable} "$@"',
    )
    script(place / "apt-get", f'echo "$*" >> {tmp_path}/apt.log\ncase "$*" in *install*) touch {marker};; esac')
    script(place / "id", 'echo "${TEST_UID}"')
    return {"PATH": f"{place}:{os.environ['PATH']}", "HOME": str(tmp_path)}


def test_root_gets_the_venv_module_from_debian(bare_python: dict[str, str], tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([ROOT / "tools" / "venv", venv], env=bare_python | {"TEST_UID": "0"}, check=True)
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    assert (tmp_path / "apt.log").read_text(encoding="utf-8").splitlines() == [
        "update -qq",
        f"install -y -qq {package}",
    ]
    assert subprocess.run([venv / "bin" / "python", "-m", "pip", "--version"], check=False).returncode == 0


def test_others_are_told_what_to_install(bare_python: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "tools" / "venv", tmp_path / "venv"],
        env=bare_python | {"TEST_UID": "1000"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "apt-get install python3." in done.stderr
    assert not (tmp_path / "apt.log").exists()


def test_an_old_python_is_refused(tmp_path: Path) -> None:
    script(tmp_path / "python3", "exit 1")
    done = subprocess.run(
        [ROOT / "tools" / "venv", tmp_path / "venv"],
        env={"PATH": os.environ["PATH"], "PYTHON": str(tmp_path / "python3")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Python 3.11 or newer" in done.stderr


@pytest.mark.timeout(600)
def test_pip_alone_makes_the_same_environment(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    made = subprocess.run(
        ["make", "--no-print-directory", "setup-pip", f"VENV={venv}", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr[-3000:]
    checked = subprocess.run(
        [venv / "bin" / "python", "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    complaints = [line for line in checked.stdout.splitlines() if " requirement jsonschema-rs<" not in line]
    assert complaints in ([], ["No broken requirements found."]), "beyond what override-dependencies says"
    shown = subprocess.run(
        [venv / "bin" / "pamspec", "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "run the whole service" in shown.stdout


def test_requirements_are_those_of_the_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check = tool("check_requirements")
    monkeypatch.setattr(sys, "argv", ["check"])
    assert check.main() == 0
    changed = tmp_path / "requirements.txt"
    shutil.copy(ROOT / "requirements.txt", changed)
    with changed.open("a", encoding="utf-8") as out:
        out.write("other==1.0\n")
    monkeypatch.setattr(check, "TARGET", changed)
    assert check.main() == 1


@pytest.mark.parametrize(
    "line",
    [
        "see " + "/ro" + "ot/project/file",
        "index = https://" + "py" + "pi.org/simple",
        "# TO" + "DO: later",
    ],
)
def test_texts_that_do_not_belong_here_are_found(line: str) -> None:
    check = tool("check_texts")
    assert check.findings("file", f"fine\n{line}\n")[0].startswith("file:2: ")
    assert not check.findings("file", "fine\n/v1/root/x and a TODOLIST\n")


def test_a_page_that_names_a_file_that_is_gone_is_found() -> None:
    check = tool("check_texts")
    page = "pinned by `services/write/tests/test_gone.py` and `test_here.py`"
    assert check.missing_files("page.md", page, {"a/test_here.py"}) == [
        "page.md: names services/write/tests/test_gone.py, which is not there"
    ]
