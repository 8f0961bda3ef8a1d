"""`pamspec encryption`: a new key, and what is told to whoever has set none. What it does to a store: test_sealing."""

from __future__ import annotations

import base64

import pytest

from pamspec_cli.__main__ import main
from pamspec_common.sealing import KEY_BYTES, decoded


def test_a_new_key_can_be_set_and_is_another_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert [main(["encryption", "new-key"]) for _ in range(2)] == [0, 0]
    first, second = capsys.readouterr().out.split()
    assert first != second
    assert decoded("k", first.encode()) == base64.b64decode(first)
    assert len(base64.b64decode(first)) == KEY_BYTES


@pytest.mark.parametrize("action", ["seal", "rewrap"])
def test_nothing_is_sealed_without_a_key(
    action: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAMSPEC_ENCRYPTION_KEYS", raising=False)
    assert main(["encryption", action]) == 2
    assert "PAMSPEC_ENCRYPTION_KEYS" in capsys.readouterr().err
