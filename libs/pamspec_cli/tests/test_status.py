"""`pamspec status`: what it says to people, and its exit code."""

import argparse
import asyncio
import json

import pytest

from libs.conftest import Product
from pamspec_cli.commands import status


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAMSPEC_DATA", raising=False)


async def run(*, as_json: bool = False) -> int:
    return await asyncio.to_thread(status.run, argparse.Namespace(data=None, json=as_json))


async def test_a_running_service_tells_of_every_step_behind_a_write(
    product: Product, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAMSPEC_URL", product.url)
    steps = ("outbox", "delegation behind", "indexing behind", "index behind", "parked", "erasures open")
    lines: list[str] = []
    async with asyncio.timeout(60):
        # Partitions have owners a moment after the start.
        while not all(any(line.startswith(f"  {step} ") for line in lines) for step in steps):
            assert await run() == 0
            lines = capsys.readouterr().out.splitlines()
    assert product.url in lines[0]
    for service in ("gateway", "write", "relay", "query", "subscription", "delegation", "indexing"):
        assert any(line.startswith(f"  {service} ") and ("ready" in line or "degraded" in line) for line in lines)
    assert await run(as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["parts"]["relay.outbox"]["ok"] in (True, False)


async def test_a_service_that_does_not_answer_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unused_tcp_port: int
) -> None:
    monkeypatch.setenv("PAMSPEC_URL", f"http://127.0.0.1:{unused_tcp_port}")
    assert await run() == 1
    assert capsys.readouterr().out.startswith("unreachable")


def test_what_lags_comes_first_and_each_service_says_why_it_is_not_ready() -> None:
    parts = {
        "relay.outbox": {"ok": False, "essential": False, "depth": 70_000, "oldest_s": 61.5, "members": 2},
        "indexing.partition_0": {"ok": True, "essential": False, "state": "consuming", "lag": 3},
        "indexing.partition_1": {"ok": True, "essential": False, "state": "consuming", "lag": 4},
        "indexing.inbox": {"ok": False, "essential": False, "parked": 1},
        "delegation.inbox": {"ok": True, "essential": False, "parked": 0},
        "retention_sweeper.erasure_receipts": {"ok": True, "essential": False, "open": 2, "failing": 0, "oldest_s": 9},
        "write.store": {"ok": False, "essential": True},
        "keys": {"ok": True, "essential": True},
    }
    lines = status._lines({"status": "not_ready", "gateway": "http://door", "parts": parts})
    assert lines[:5] == [
        "not_ready  http://door",
        "  outbox               70000 waiting, the oldest 61.5 s",
        "  indexing behind      7 entries",
        "  parked               1",
        "  erasures open        2, 0 with something left, the oldest 9 s",
    ]
    for line in (
        "  gateway              ready",
        "  indexing             degraded: inbox",
        "  relay                degraded: outbox",
        "  write                not ready: store",
    ):
        assert line in lines
