"""A clock of Python processes that tests move: `time.time` of whoever starts with these variables."""

from collections.abc import Mapping
from pathlib import Path

_SITECUSTOMIZE = """
import os, time
path, now, now_ns = os.environ["PAMSPEC_TEST_CLOCK"], time.time, time.time_ns

def ahead():
    with open(path, encoding="ascii") as file:
        return int(file.read() or "0")

time.time = lambda: now() + ahead()
time.time_ns = lambda: now_ns() + ahead() * 1_000_000_000
"""


class MovableClock:
    """Right at first. `directory` must stay as long as processes go by it."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._file = directory, directory / "ahead"
        (directory / "sitecustomize.py").write_text(_SITECUSTOMIZE, encoding="utf-8")
        self.move(0)

    @property
    def variables(self) -> Mapping[str, str]:
        """Of the processes that go by it."""
        return {"PYTHONPATH": str(self._directory), "PAMSPEC_TEST_CLOCK": str(self._file)}

    def move(self, seconds: int) -> None:
        """So far ahead of the right time, or behind it."""
        draft = self._directory / "draft"
        draft.write_text(str(seconds), encoding="ascii")
        draft.replace(self._file)
