"""Which servers a run has is what PAMSPEC_TEST_SERVERS says, and an unknown or impossible wish is an error."""

import pytest

from tests.servers import chosen, containers


def choose(monkeypatch: pytest.MonkeyPatch, kind: str, *, engine: bool) -> chosen.Servers:
    monkeypatch.setenv("PAMSPEC_TEST_SERVERS", kind)
    monkeypatch.setattr(containers, "engine_answers", lambda: engine)
    return chosen.servers.__wrapped__()


@pytest.mark.parametrize(
    ("kind", "engine", "expected"),
    [
        ("", True, "embedded"),
        ("embedded", True, "embedded"),
        ("auto", True, "docker"),
        ("auto", False, "embedded"),
        ("docker", True, "docker"),
    ],
)
def test_the_variable_decides(monkeypatch: pytest.MonkeyPatch, kind: str, engine: bool, expected: str) -> None:
    assert choose(monkeypatch, kind, engine=engine).kind == expected


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_what_cannot_be_had_is_an_error(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with pytest.raises(RuntimeError):
        choose(monkeypatch, kind, engine=False)
