"""`pamspec conformance` against a running product, as a person or a script calls it."""

import asyncio
import json
from pathlib import Path

import pytest

from libs.conftest import Product
from pamspec_cli.__main__ import main
from pamspec_conformance.scenarios import shipped


@pytest.fixture
def address(product: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for name in ("PAMSPEC_URL", "PAMSPEC_API_KEY", "PAMSPEC_DATA", "PAMSPEC_DEV_KEY"):
        monkeypatch.delenv(name, raising=False)
    return ["--url", product.url, "--key", product.key, "--data", str(tmp_path)]


async def test_a_profile_is_run_and_reported_twice(
    address: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"--json": tmp_path / "report.json", "--markdown": tmp_path / "report.md"}
    options = [part for name, file in places.items() for part in (name, str(file))]
    assert await asyncio.to_thread(main, ["conformance", "--profile", "lite", *options, *address]) == 0
    shown = capsys.readouterr().out
    report = json.loads(places["--json"].read_text())
    lite = report["profiles"][0]
    # Neither a second key nor a way to restart was given.
    assert {case["outcome"] for case in lite["cases"]} == {"passed", "not tried"}
    assert lite["standing"] == "partial"
    assert {profile["standing"] for profile in report["profiles"][1:]} == {"not run"}
    assert report["implementation"]["name"] == "PAMSPEC memory service"
    assert "not stated" not in (report["storage"], report["authorization"], report["deletion"])
    assert "LITE" in shown
    assert "0 of 11 profiles complete" in shown
    assert "# Implementation report: PAMSPEC memory service" in places["--markdown"].read_text()


async def test_one_case_goes_to_standard_output(address: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    case = ["--case", "lite.create_answers_the_envelope"]
    assert await asyncio.to_thread(main, ["conformance", *case, "--json", "-", *address]) == 0
    assert json.loads(capsys.readouterr().out)["test_results"]["passed"] == 1
    assert await asyncio.to_thread(main, ["conformance", *case, *address]) == 0
    assert "| `lite.create_answers_the_envelope` " in capsys.readouterr().out


async def test_a_failing_case_is_an_exit_code(product: Product, capsys: pytest.CaptureFixture[str]) -> None:
    """With a key that opens nothing every operation is refused."""
    wrong = ["--url", product.url, "--key", "wrong-key-0123456789abcdef"]
    case = ["--case", "lite.create_answers_the_envelope"]
    assert await asyncio.to_thread(main, ["conformance", *case, *wrong]) == 1
    assert "access_denied" in capsys.readouterr().err


async def test_the_scenario_is_run_step_by_step(
    address: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asyncio.to_thread(main, ["conformance", "--scenario", *address]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 16
    assert lines[0].split() == ["1", "ingest_event", "passed"]
    wrong = shipped()
    wrong["steps"][0]["expect"]["canonical_version"] = 99
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps(wrong))
    assert await asyncio.to_thread(main, ["conformance", "--scenario", str(file), *address]) == 1
    assert await asyncio.to_thread(main, ["conformance", "--scenario", str(tmp_path / "none"), *address]) == 2


def test_the_cases_are_listed(address: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "--list", "--profile", "DELEGATION"]) == 0
    assert "delegation.an_inverted_window_is_denied  P209\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--profile", "NONE"], "SEMANTIC-QUERY"),
        (["--case", "lite.none"], "--list"),
        (["--json", "-", "--markdown", "-"], "standard output"),
        (["--case", "lite.unknown_scope_is_refused", "--statement", "{bad}"], "statement"),
    ],
)
def test_misuse_says_what_to_do(
    arguments: list[str], said: str, address: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bad = tmp_path / "statement.json"
    bad.write_text('{"colour": "blue"}')
    given = [part.format(bad=bad) for part in arguments]
    assert main(["conformance", *given, *address]) == 2
    assert said in capsys.readouterr().err
