"""`pamspec encryption`: a new key, and what is told to whoever has set none. What it does to a store: test_sealing."""

from __future__ import annotations

import base64

import asyncpg
import pytest

from libs.conftest import Product
from pamspec_cli import sealed
from pamspec_cli.__main__ import main
from pamspec_cli.commands.verify import connected
from pamspec_cli.connection import Misused
from pamspec_common.sealing import KEY_BYTES, KeyRing, WrongKey, decoded


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


@pytest.mark.parametrize(("value", "said"), [("{", "JSON"), ('{"a": "short"}', "32 bytes")])
def test_keys_that_cannot_be_used_are_one_line(
    value: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAMSPEC_ENCRYPTION_KEYS", value)
    assert main(["encryption", "seal"]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1


async def test_a_store_that_was_sealed_with_another_key_says_which_to_set(
    product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAMSPEC_ENCRYPTION_KEYS", raising=False)
    await sealed.fitting(product.database_url)
    conn = await asyncpg.connect(product.database_url)
    try:
        await sealed.known(conn, KeyRing({"of-a-test": bytes(KEY_BYTES)}))
        with pytest.raises(WrongKey, match="of-a-test"):
            await sealed.fitting(product.database_url)
        with pytest.raises(Misused, match="of-a-test"):
            async with connected(product.database_url):
                pass
    finally:
        await sealed.retire(conn, "of-a-test")
        await conn.close()
