"""What finds, from a shell: along relationships, contexts, embedding spaces, vectors that people bring."""

import asyncio
import json
from pathlib import Path

import pytest

from libs.pamspec_cli.tests.test_commands import Shell, shell
from pamspec_cli.__main__ import main

__all__ = ["shell"]

PATIENCE_S = 60.0
AXES = {
    "model": "axes", "dimensions": 3, "distance_metric": "cosine", "embedding_kind": "dense", "provider": "test",
    "model_revision": "1", "normalization": "none", "preprocessing_profile": "none", "canonicalization_rules": "none",
}  # fmt: skip


async def create(shell: Shell, text: str) -> tuple[str, str]:
    """An object of that text: its id and its version's."""
    made = (await shell("create", "--scope", shell.scope, "--text", text)).split()
    return made[0], made[2]


@pytest.fixture
async def space(shell: Shell, tmp_path: Path) -> str:
    """A space of three axes, described from a file."""
    name = f"{shell.scope.replace('workspace', 'space')}-axes"
    file = tmp_path / "space.json"
    file.write_text(json.dumps({"embedding_space_id": name, **AXES}))
    for _ in range(2):
        assert f"{name}  registered" in await shell("spaces", "--register", str(file))
    return name


async def test_memory_is_found_along_relationships(shell: Shell) -> None:
    """The nearer the better; a traversal without ranks only narrows."""
    names = [(await create(shell, f"memory {number}"))[0] for number in range(4)]
    for source, target in ((names[0], names[1]), (names[1], names[2])):
        await shell("relate", source, "supports", target, "--scope", shell.scope)
    ask = ("query", "--scope", shell.scope, "--trust", "all", "--from", names[0], "--depth", "2")
    ranked = json.loads(await shell(*ask, "--mode", "graph", "--json"))
    assert [item["envelope"]["object_id"] for item in ranked["items"]] == names[1:3]
    narrowed = await shell(*ask, "--follow", "supports")
    assert [name in narrowed for name in names] == [False, True, True, False]
    assert "nothing" not in await shell(*ask, "--direction", "incoming")
    assert names[1] not in await shell(*ask, "--direction", "incoming")
    assert "--from" in await shell("query", "--scope", shell.scope, "--mode", "graph", code=2)
    assert "--from" in await shell("query", "--scope", shell.scope, "--depth", "2", code=2)


async def test_a_context_is_printed_for_a_prompt(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("The depot opens at six.", "The depot opens at six.", "Nothing of interest."):
        await create(shell, text)
    ask = ("assemble", "--scope", shell.scope, "--trust", "all", "--type", "observation")
    told = json.loads(await shell(*ask, "--max-tokens", "500", "--max-items", "1", "--json"))
    assert told["budget"]["max_tokens"] == 500
    assert len(told["evidence"]) == 1
    await asyncio.to_thread(main, [*ask, *shell.service])
    said = capsys.readouterr()
    assert said.out.count("The depot opens at six.") == 1
    assert "1 duplicate" in said.err
    assert "embedding_space_id" in await shell(*ask, "--min-score", "0.5", code=1)
    assert "--trust working" in await hint(shell, capsys)


async def hint(shell: Shell, capsys: pytest.CaptureFixture[str]) -> str:
    """What stands on standard error where nothing is trusted."""
    await asyncio.to_thread(main, ["assemble", "--scope", shell.scope, *shell.service])
    return capsys.readouterr().err


async def test_spaces_are_shown_and_described(shell: Shell, space: str, tmp_path: Path) -> None:
    assert space in await shell("spaces")
    shown = json.loads(await shell("spaces", "--show", space))
    assert {name: shown[name] for name in AXES} == AXES
    assert "pamspec spaces" in await shell("spaces", "--show", "space:of-nobody", code=2)
    assert "--scope" in await shell("spaces", "--drop", space, code=2)
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[]")
    assert "no descriptor" in await shell("spaces", "--register", str(wrong), code=2)


async def test_vectors_are_brought_found_and_dropped(shell: Shell, space: str, tmp_path: Path) -> None:
    """More than go into one request; a wrong line is named, and an empty list takes vectors away."""
    made = [await create(shell, f"memory {number}") for number in range(3)]
    file = tmp_path / "vectors.jsonl"
    lines = [
        {"object_id": name, "version_id": version, "vector": [float(axis == number) for axis in range(3)]}
        for number, (name, version) in enumerate(made)
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    bring = ("vectors", "--scope", shell.scope, "--space", space, "--file", str(file))
    assert await shell(*bring) == "3 vectors of 3 objects\n"
    ask = ("assemble", "--scope", shell.scope, "--trust", "all", "--text", "memory", "--mode", "vector")
    assert "no_embedder" in await shell(*ask, "--space", space, code=1)
    assert json.loads(await shell("spaces", "--drop", space, "--scope", shell.scope, "--json"))["state"] == "retired"
    file.write_text('{"object_id": "obj:a"\n')
    assert "line 1: no JSON" in await shell(*bring, code=2)
    assert "cannot be read" in await shell(*bring[:-1], str(tmp_path / "none"), code=2)
