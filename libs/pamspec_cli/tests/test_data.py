"""A data directory has one owner at a time, and no stale file keeps the next one out."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pamspec_cli.data import DataDirectory, DirectoryBusy, chosen

HOLDER = """
import signal, sys
from pathlib import Path
from pamspec_cli.data import DataDirectory
with DataDirectory(Path(sys.argv[1])):
    print("held", flush=True)
    signal.pause()
"""


def hold(path: Path) -> subprocess.Popen[bytes]:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    return holder


def test_the_second_owner_is_told_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "data"
    holder = hold(path)
    try:
        with pytest.raises(DirectoryBusy, match=rf"process {holder.pid}\b.*pamspec down"), DataDirectory(path):
            pass
        assert DataDirectory(path).owner() == holder.pid
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert DataDirectory(path).owner() is None
    with DataDirectory(path) as data:
        assert data.owner() == os.getpid()


def test_secrets_are_made_once_and_private(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "data") as data:
        first = data.secret("one")
        assert data.secret("one") == first
        assert data.secret("two") != first
        assert stat.S_IMODE(data.path.stat().st_mode) == 0o700
        assert stat.S_IMODE((data.path / "secrets" / "one").stat().st_mode) == 0o600


def test_the_note_is_gone_after_the_owner(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "data") as data:
        data.note({"gateway": "http://127.0.0.1:1"})
        assert data.noted() == {"gateway": "http://127.0.0.1:1"}
    assert data.noted() == {}


def test_the_note_of_a_killed_owner_counts_for_nothing(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    data.note({"gateway": "http://127.0.0.1:1"})
    assert data.noted() == {}
    with data:
        assert data.noted() == {}


def test_the_directory_is_the_argument_then_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PAMSPEC_DATA", str(tmp_path / "variable"))
    assert chosen(str(tmp_path / "argument")) == tmp_path / "argument"
    assert chosen(None) == tmp_path / "variable"
    monkeypatch.delenv("PAMSPEC_DATA")
    monkeypatch.chdir(tmp_path)
    assert chosen(None) == tmp_path / ".data"
