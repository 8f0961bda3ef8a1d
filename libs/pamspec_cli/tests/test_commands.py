"""The commands over a running product, as a person or a script calls them."""

import asyncio
import itertools
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from libs.conftest import Product
from pamspec_cli.__main__ import main
from pamspec_cli.demo.conversations import sample
from pamspec_cli.looking import only_space
from pamspec_client import Client

_numbers = itertools.count(1)


class Shell:
    """Runs commands against one service and in one scope."""

    def __init__(self, product: Product, capsys: pytest.CaptureFixture[str], data: Path) -> None:
        self._capsys = capsys
        self.service = ["--url", product.url, "--key", product.key, "--data", str(data)]
        self.scope = f"workspace:commands-{next(_numbers)}"

    async def __call__(self, *arguments: str, code: int = 0) -> str:
        """Standard output of a command that ends with this code, or standard error where that is not 0."""
        self._capsys.readouterr()
        found = await asyncio.to_thread(main, [*arguments, *self.service])
        seen = self._capsys.readouterr()
        assert found == code, seen.err
        return seen.out if code == 0 else seen.err


@pytest.fixture
async def shell(
    product: Product, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Shell:
    for name in ("PAMSPEC_URL", "PAMSPEC_API_KEY", "PAMSPEC_DATA", "PAMSPEC_DEV_KEY"):
        monkeypatch.delenv(name, raising=False)
    made = Shell(product, capsys, tmp_path)
    async with product.client() as client:
        await client.create_scope(scope_id=made.scope, scope_kind="workspace")
    return made


async def test_an_object_is_stored_shown_and_found(shell: Shell) -> None:
    line = await shell("create", "--scope", shell.scope, "--content", '{"n": 1.10}', "--source", "test:here")
    object_id = line.split()[0]
    assert re.fullmatch(r"obj:\S+  version ver:\S+  ledger sequence 1\n", line)
    shown = await shell("read", object_id, "--scope", shell.scope)
    assert "test:here" in shown
    assert '"n": 1.1' in shown
    document = await shell("read", object_id, "--scope", shell.scope, "--json")
    assert '"canonical_content":{"n":1.10}' in document
    assert object_id in await shell("query", "--scope", shell.scope, "--trust", "working")
    assert await shell("query", "--scope", shell.scope) == ""
    by_words = ("query", "--scope", shell.scope, "--trust", "working", "--explain", "--profile", "recent")
    ranked = json.loads(await shell(*by_words, "--text", "some words", "--json"))
    assert (ranked["index"]["index_id"], ranked["index"]["ordering_profile"]) == ("index:lexical", "recent")
    history = await shell("history", object_id, "--scope", shell.scope)
    assert "object_created" in history
    assert "version 1: active available retained unverified" in history


async def test_a_query_by_meaning_takes_the_only_space_of_the_scope(shell: Shell, product: Product) -> None:
    ask = ("query", "--scope", shell.scope, "--trust", "working", "--mode", "vector", "--text", "hours")
    made = (await shell("create", "--scope", shell.scope, "--text", "The depot opens at six.")).split()
    assert "--mode lexical" in await shell(*ask, code=2)
    spaces = [f"{shell.scope.replace('workspace', 'space')}-{name}" for name in "ab"]

    def found() -> str:
        with Client(product.url, product.key) as client:
            return only_space(client, shell.scope)

    async with product.client() as client:
        for space in spaces:
            axes: dict[str, object] = {"embedding_space_id": space, "model": "axes", "dimensions": 3}
            axes |= {"distance_metric": "cosine", "embedding_kind": "dense", "provider": "test", "model_revision": "1"}
            axes |= dict.fromkeys(("normalization", "preprocessing_profile", "canonicalization_rules"), "none")
            await client.call("register_embedding_space", axes)
            one = {"object_id": made[0], "version_id": made[2], "vector": [1.0, 0.0, 0.0]}
            await client.call("put_vectors", {"scope_id": shell.scope, "embedding_space_id": space, "vectors": [one]})
            if space == spaces[0]:
                assert await asyncio.to_thread(found) == space
    assert ", ".join(spaces) in await shell(*ask, code=2)


async def test_an_answer_without_anything_says_where_to_look(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    await shell("create", "--scope", shell.scope, "--text", "The depot opens at six.")
    where = ["query", "--scope", shell.scope, *shell.service]
    for more, said in (
        ([], "--trust working"),
        (["--trust", "working", "--type", "claim"], "nothing found; --trust all"),
        (["--trust", "all", "--type", "claim"], "nothing found\n"),
    ):
        capsys.readouterr()
        assert await asyncio.to_thread(main, where + more) == 0
        assert said in capsys.readouterr().err


async def test_an_object_is_updated_restored_and_made_trusted(shell: Shell) -> None:
    where = ("--scope", shell.scope)
    object_id, _, first, *_ = (await shell("create", *where, "--text", "six")).split()
    line = await shell("update", object_id, *where, "--content", '{"n": 1.10}', "--source", "test:here")
    assert re.fullmatch(rf"{object_id}  version ver:\S+  ledger sequence 2\n", line)
    assert '"canonical_content":{"n":1.10}' in await shell("read", object_id, *where, "--json")
    await shell("update", object_id, *where, "--restore", first)
    assert '"text": "six"' in await shell("read", object_id, *where)
    refused = await shell("update", object_id, *where, "--text", "a", "--expected", first, code=1)
    assert re.search(r"\npamspec: current_version_id ver:\S+, expected_version_id ver:\S+\n", refused)
    moved = await shell("transition", object_id, "validation", "corroborated", *where, "--basis", "checked")
    assert re.fullmatch(rf"{object_id}  active available retained corroborated  version ver:\S+\n", moved)
    assert object_id in await shell("query", *where)
    no_edge = ("transition", object_id, "validation", "unverified", *where, "--basis", "why")
    assert "pamspec: " in await shell(*no_edge, code=1)


async def test_content_is_erased_in_part_by_version_and_whole(shell: Shell) -> None:
    where = ("--scope", shell.scope, "--basis", "asked")
    first = (await shell("create", "--scope", shell.scope, "--content", '{"a": 1.0, "b": [1, 2], "c": 3}')).split()
    object_id, version = first[0], first[2]
    line = await shell("redact", object_id, *where, "--path", "/a", "--path", "/b/0", "--expected", version)
    assert re.fullmatch(rf"{object_id}  partially_redacted  version ver:\S+  erasure:\S+\n.+\n", line)
    assert line.endswith('{"b": [2], "c": 3}\n')
    assert "names nothing" in await shell("redact", object_id, *where, "--path", "/a", code=1)
    second = line.split()[3]
    third = (await shell("redact", object_id, *where, "--path", "/b")).split()[3]
    line = await shell("redact", object_id, *where, "--whole", "--version", second)
    assert line.endswith('{"c": 3}\n')
    assert "object_redacted" in await shell("read", object_id, "--scope", shell.scope, "--version", second, code=1)
    assert '"c": 3' in await shell("read", object_id, "--scope", shell.scope, "--version", third)
    gone = json.loads(await shell("redact", object_id, *where, "--whole", "--json"))
    assert gone["envelope"]["availability_state"] == "redacted"
    assert "--expected" in await shell("delete", object_id, *where, code=2)
    line = await shell("delete", object_id, *where, "--expected", gone["version_id"])
    assert line.startswith(f"{object_id}  deleted  version ver:")
    history = await shell("history", object_id, "--scope", shell.scope)
    assert history.count("object_redacted") == 4
    assert history.count('{"tombstone": true}') == 6


async def test_objects_are_joined_and_working_memory_is_promoted(shell: Shell) -> None:
    where = ("--scope", shell.scope)
    one, two = [(await shell("create", *where, "--text", text)).split()[0] for text in "ab"]
    line = await shell("relate", one, "supports", two, *where, "--content", '{"weight": 1.50}')
    assert re.fullmatch(r"rel:\S+  version ver:\S+  ledger sequence 3\n", line)
    assert "relationship_conflict" in await shell("relate", one, "supports", two, *where, code=1)
    assert "no JSON" in await shell("relate", one, "part_of", two, *where, "--content", "{", code=2)
    await shell("scopes", "--create", f"{shell.scope}-other")
    other = ("--target-scope", f"{shell.scope}-other", "--basis", "agreed")
    assert "policy_denied" in await shell("relate", one, "part_of", two, *where, *other, code=1)
    undirected = json.loads(await shell("relate", one, "part_of", two, *where, "--direction", "undirected", "--json"))
    assert undirected["envelope"]["directionality"] == "undirected"
    memory = ("--type", "working_memory", "--content", '{"task_ref": "task:1", "content": "think"}')
    source = (await shell("create", *where, *memory)).split()[0]
    line = await shell("promote", source, *where, "--type", "decision", "--text", "done")
    assert re.fullmatch(r"obj:\S+  version ver:\S+  ledger sequence 9  rel:\S+\n", line)
    assert "superseded" in await shell("read", source, *where)
    again = ("--type", "task", "--content", "null", "--json")
    assert "invalid_state_transition" in await shell("promote", source, *where, *again, code=1)
    assert "invalid_request" in await shell("promote", one, *where, *again, code=1)


async def test_a_scope_is_made_and_listed(shell: Shell) -> None:
    scope = f"{shell.scope}-new"
    assert "create_scope" in await shell("create", "--scope", scope, "--text", "a", code=1)
    for _ in range(2):
        assert await shell("scopes", "--create", scope) == f"{scope}  workspace\n"
    assert f"{scope}  workspace\n" in await shell("scopes")
    assert scope in await shell("scopes", "--json")
    await shell("create", "--scope", scope, "--text", "a")


async def test_a_policy_is_set_and_shown(shell: Shell, tmp_path: Path) -> None:
    scope, file = f"{shell.scope}-ruled", tmp_path / "policy.json"
    file.write_text('{"object_types": {"deny": ["task"]}}')
    await shell("scopes", "--create", scope, "--policy", str(file))
    assert "unsupported_object_type" in await shell("create", "--scope", scope, "--type", "task", "--text", "a", code=1)
    file.write_text("{}")
    where = ("scopes", "--scope", scope)
    assert "--basis" in await shell(*where, "--policy", str(file), code=2)
    assert await shell(*where, "--policy", str(file), "--basis", "agreed") == f"{scope}  policy version 2\n"
    assert "version_conflict" in await shell(
        *where, "--policy", str(file), "--basis", "agreed", "--expected", "1", code=1
    )
    assert await shell(*where) == f"{scope}  {scope.partition(':')[0]}  policy version 2\n{{}}\n"
    history = (await shell(*where, "--history")).splitlines()
    assert [line.split()[0] for line in history] == ["2", "1"]
    assert history[0].endswith("agreed")
    assert history[1].endswith("made with the scope")
    file.write_text("{")
    assert "no JSON" in await shell(*where, "--policy", str(file), "--basis", "x", code=2)


async def test_a_hold_is_placed_shown_and_released(shell: Shell) -> None:
    scope = f"{shell.scope}-held"
    await shell("scopes", "--create", scope)
    object_id = (await shell("create", "--scope", scope, "--type", "claim", "--text", "a")).split()[0]
    where = ("holds", "--scope", scope)
    assert "--basis" in await shell(*where, "--place", code=2)
    hold_id = (await shell(*where, "--place", "--type", "claim", "--basis", "matter 17")).split()[0]
    assert "legal_hold" in await shell("delete", object_id, "--scope", scope, "--basis", "wish", code=1)
    assert f"{hold_id}  claim  in force  matter 17" in await shell(*where)
    assert await shell(*where, "--release", hold_id, "--basis", "closed") == f"{hold_id}  released\n"
    assert await shell(*where) == ""
    assert f"{hold_id}  claim  released" in await shell(*where, "--all")


async def test_receipts_of_erasures_and_a_forget(shell: Shell) -> None:
    scope = f"{shell.scope}-erased"
    await shell("scopes", "--create", scope)
    object_id = (await shell("create", "--scope", scope, "--type", "claim", "--text", "a")).split()[0]
    name = (await shell("delete", object_id, "--scope", scope, "--basis", "wish")).split()[-1]
    assert (await shell("erasures", "--scope", scope)).startswith(f"{name}  delete  {object_id}  ")
    assert "canonical_content" in await shell("erasures", name)
    assert json.loads(await shell("erasures", name, "--json"))["erasures"][0]["erasure_id"] == name
    assert "--scope" in await shell("erasures", code=2)
    where = ("erasures", "--scope", scope, "--forget", "--basis", "asked")
    assert "--actor" in await shell(*where, code=2)
    await shell("create", "--scope", scope, "--type", "claim", "--text", "b")
    shown = await shell(*where, "--where", '{"field": "object_type", "op": "eq", "value": "claim"}')
    assert shown.startswith("1 objects and 0 relationships would go")
    begun = await shell(
        *where, "--where", '{"field": "object_type", "op": "eq", "value": "claim"}', "--token", shown.split()[-1]
    )
    assert "running, 1 objects" in begun


async def test_a_schema_is_registered_and_shown(shell: Shell, tmp_path: Path) -> None:
    scope, file, uri = f"{shell.scope}-formed", tmp_path / "schema.json", "https://schemas.example.com/note"
    await shell("scopes", "--create", scope)
    file.write_text('{"type": "object", "required": ["title"]}')
    where = ("schemas", "--scope", scope)
    assert "--file" in await shell(*where, "--register", uri, code=2)
    for _ in range(2):
        assert await shell(*where, "--register", uri, "--file", str(file)) == f"{uri}  registered\n"
    assert (await shell(*where)).startswith(f"{uri}  20")
    assert json.loads(await shell(*where, "--show", uri)) == json.loads(file.read_text())
    file.write_text('{"$ref": "https://elsewhere.example/s"}')
    assert "leads outside" in await shell(*where, "--register", f"{uri}/2", "--file", str(file), code=1)


async def test_json_is_the_answer_as_it_came(shell: Shell) -> None:
    made = json.loads(await shell("create", "--scope", shell.scope, "--text", "hello", "--json"))
    assert made["envelope"]["canonical_content"] == {"text": "hello"}
    found = json.loads(await shell("query", "--scope", shell.scope, "--trust", "all", "--json"))
    assert [item["envelope"]["object_id"] for item in found["items"]] == [made["object_id"]]
    history = json.loads(await shell("history", "--scope", shell.scope, "--json"))
    assert [event["event_type"] for event in history["events"]] == ["object_created"]


async def test_pages_are_asked_for_with_a_cursor_or_all_at_once(shell: Shell) -> None:
    for number in range(5):
        await shell("create", "--scope", shell.scope, "--content", str(number))
    wanted = ("query", "--scope", shell.scope, "--trust", "working", "--limit", "2")
    assert len((await shell(*wanted)).splitlines()) == 2
    assert len((await shell(*wanted, "--all")).splitlines()) == 5


async def test_content_comes_from_a_file(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "content.json"
    file.write_text('["a", 2]', encoding="utf-8")
    made = json.loads(await shell("create", "--scope", shell.scope, "--content-file", str(file), "--json"))
    assert made["envelope"]["canonical_content"] == ["a", 2]


@pytest.mark.parametrize("channel", ["poll", "sse", "websocket"])
async def test_events_are_tailed(shell: Shell, channel: str) -> None:
    for number in range(3):
        await shell("create", "--scope", shell.scope, "--content", str(number))
    tail = ("tail", shell.scope, "--after", "0", "--event", "object_created", "--count", "3")
    lines = (await shell(*tail, "--channel", channel, "--content")).splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert [line.split()[-1] for line in lines] == ["0", "1", "2"]


@pytest.mark.parametrize("channel", ["poll", "sse", "websocket"])
async def test_ctrl_c_ends_a_tail_and_its_subscription(shell: Shell, channel: str) -> None:
    await shell("create", "--scope", shell.scope, "--text", "a")
    tail = ("tail", shell.scope, "--after", "0", "--event", "object_created", "--channel", channel)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pamspec_cli", *tail, *shell.service, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(30):
        assert b"object_created" in await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
    assert "closed: unsubscribed" in await shell("subscribe", "--list", "--scope", shell.scope)


async def test_a_subscription_is_opened_listed_followed_and_ended(shell: Shell) -> None:
    await shell("create", "--scope", shell.scope, "--text", "a")
    opened = json.loads(await shell("subscribe", "--scope", shell.scope, "--after", "0", "--json"))
    id_ = opened["subscription_id"]
    assert id_ in await shell("subscribe", "--list", "--scope", shell.scope)
    tail = ("tail", "--subscription", id_, "--channel", "poll", "--count", "1", "--json")
    assert json.loads(await shell(*tail))["event_type"] == "object_created"
    assert "acknowledged 1" in await shell("subscribe", "--list", "--scope", shell.scope)
    assert "closed" in await shell("subscribe", "--end", id_)
    assert "closed: " in await shell("subscribe", "--list", "--scope", shell.scope)


async def test_a_webhook_is_opened_watched_and_given_a_new_secret(shell: Shell) -> None:
    """The endpoint does not exist, so that nothing is ever sent."""
    url = "https://hooks.example.invalid/garden"
    text = await shell("subscribe", "--scope", shell.scope, "--channel", "webhook", "--webhook", url)
    assert re.search(r"this once: whsec_\S{44}\n", text)
    id_ = text.split()[0]
    assert "nothing is parked" in await shell("subscriptions", "parked", id_)
    await shell("subscriptions", "log", id_)
    assert re.search(r"this once: whsec_\S{44}\nearlier ones sign until ", await shell("subscriptions", "rotate", id_))
    assert "goes on after" in await shell("subscriptions", "replay", id_)
    assert "list_parked" in await shell("subscriptions", "replay", id_, "--skip", "1", code=1)
    assert "belongs to replay" in await shell("subscriptions", "log", id_, "--skip", "1", code=2)
    assert json.loads(await shell("subscriptions", "parked", id_, "--json"))["parked"] == []
    private = ("subscribe", "--scope", shell.scope, "--channel", "webhook", "--webhook", "https://10.0.0.1/")
    assert "public address" in await shell(*private, code=1)


async def test_refusals_are_one_line_and_exit_code_1(shell: Shell) -> None:
    refused = await shell("read", "obj:nothing", "--scope", shell.scope, code=1)
    assert refused.startswith("pamspec: object_not_found: ")
    assert len(refused.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "--scope", "workspace:x", "--content", "{no json"),
        ("create", "--scope", "workspace:x", "--content-file", "missing.json"),
        ("query", "--scope", "workspace:x", "--where", "{"),
        ("erasures", "--scope", "workspace:x", "--forget", "--basis", "why", "--where", "{"),
        ("demo", "--conversations", "missing", "--channels", "poll"),
        ("demo", "--channels", "pigeon"),
        ("demo", "--channels", "nats"),
        ("subscribe",),
    ],
    ids=lambda arguments: " ".join(arguments[:3]),
)
async def test_misuse_is_one_line_and_exit_code_2(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert len((await shell(*arguments, code=2)).splitlines()) == 1


async def test_an_unknown_argument_is_refused_by_the_name_of_its_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["delete", "obj:a", "--scope", "workspace:x", "--basis", "why", "--object", "obj:a"])
    assert "delete has no --object obj:a; see  pamspec delete --help" in capsys.readouterr().err


async def test_without_a_service_the_message_says_what_to_do(
    shell: Shell, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert await asyncio.to_thread(main, ["query", "--scope", "workspace:x", "--data", str(tmp_path)]) == 2
    assert "pamspec up" in capsys.readouterr().err


async def test_the_demonstration_compares_every_follower(
    shell: Shell, product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAMSPEC_AGENT_NATS_URL", product.nats.url)
    found = json.loads(await shell("demo", "--rate", "0", "--json"))
    assert (found["ok"], found["turns"], found["acknowledged"]) == (True, 40, 40)
    assert {(follower["scope_id"], follower["channel"]) for follower in found["followers"]} == {
        (conversation.scope_id, channel) for conversation in sample() for channel in ("poll", "sse", "nats")
    }
    assert all(follower["received"] == 20 and not follower["missing"] for follower in found["followers"])
    again = json.loads(await shell("demo", "--channels", "poll", "--rate", "0", "--json"))
    assert (again["ok"], again["replayed"]) == (True, 40)


async def test_a_scope_is_exported_and_imported(shell: Shell, tmp_path: Path) -> None:
    for number in range(3):
        await shell("create", "--scope", shell.scope, "--text", f"number {number}")
    path, copy = tmp_path / "scope.ndjson", f"{shell.scope}-copy"
    await shell("export", shell.scope, "--output", str(path))
    assert path.read_bytes().splitlines()[-1].startswith(b'{"kind":"end"')
    assert "is there already" in await shell("export", shell.scope, "--output", str(path), code=2)
    assert await shell("import", str(path), "--remap", copy) == f"{copy}  3 entries, 3 versions\n"
    again = await shell("import", str(path), "--remap", copy)
    assert again == f"{copy}  3 entries, 3 versions, which it held already\n"
    assert "number 2" in await shell("query", "--scope", copy, "--trust", "working")
    document = json.loads(await shell("import", str(path), "--remap", copy, "--json"))
    assert document["remapped_from"]["scope_id"] == shell.scope
    left = await shell("import", str(path), "--remap", copy + "-2", "--on-conflict", "skip")
    assert left.endswith("3 versions\n")


async def test_a_bad_file_and_a_missing_scope_are_one_line(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "bad.ndjson"
    path.write_bytes(b'{"kind":"manifest"}\n')
    assert "Line 1" in await shell("import", str(path), code=1)
    assert "there is no file" in await shell("import", str(tmp_path / "none"), code=2)
    gone = tmp_path / "gone.ndjson"
    await shell("export", "workspace:none", "--output", str(gone), code=1)
    assert not gone.exists()


async def test_snapshots_are_sealed_listed_read_and_compared(shell: Shell) -> None:
    at = ("--scope", shell.scope)
    first = (await shell("create", *at, "--text", "then")).split()[0]
    name = f"snap:{shell.scope.partition(':')[2]}"
    sealed = await shell("snapshots", "seal", *at, "--id", name, "--include", first, "--run", f"run:{name[5:]}")
    assert sealed == f"{name}  up to 1  1 named  run run:{name[5:]}\n"
    second = (await shell("create", *at, "--text", "now")).split()[0]
    later = (await shell("snapshots", "seal", *at)).split()[0]
    assert "up to 2  all" in await shell("snapshots", "list", *at)
    assert await shell("snapshots", "compare", name, later) == f"+ {second}  version 1\n"
    assert await shell("snapshots", "compare", later, name) == f"- {second}  version 1\n"
    assert second not in await shell("query", *at, "--trust", "working", "--snapshot", name)
    assert first in await shell("read", first, *at, "--snapshot", name, "--json")
    assert second not in await shell("history", *at, "--snapshot", name)
    assert "snapshot" in await shell("read", first, *at, "--snapshot", "snap:none", code=1)
    again = await shell("snapshots", "seal", *at, "--id", name, code=1)
    assert "sealed and never changes" in again
    given = ("--run", f"run:clock-{name[5:]}", "--start-at", "2020-01-01T00:00:00Z", "--tick-ms", "5", "--seed", "7")
    document = json.loads(await shell("snapshots", "seal", *at, *given, "--json"))["snapshot"]
    assert (document["deterministic_clock"]["tick_ms"], document["deterministic_rng_seed"]) == (5, 7)


async def test_roles_and_rules(shell: Shell, tmp_path: Path) -> None:
    scope = ["--scope", shell.scope]
    assert "name and for a reason" in await shell("roles", *scope, "--give", "reader", code=2)
    given = await shell("roles", *scope, "--give", "contributor", "--actor", "agent:planner", "--basis", "ticket 1")
    assert given == "agent:planner  holds contributor\n"
    assert "agent:planner  contributor" in await shell("roles", *scope)
    taken = ["roles", *scope, "--take", "contributor", "--actor", "agent:planner", "--basis", "ticket 2"]
    assert "does not hold" in await shell(*taken)
    assert "so it was before" in await shell(*taken)
    assert await shell("rules", *scope) == "no rules beside those of the roles\n"
    rules = tmp_path / "rules.cedar"
    rules.write_text('@id("a") forbid (principal, action, resource) when { resource.object_type like "x*" };')
    assert "cannot apply" in await shell("rules", *scope, "--set", str(rules), "--basis", "x", code=1)
    rules.write_text('@id("a") forbid (principal, action == Action::"delete", resource);')
    assert "can apply" in await shell("rules", *scope, "--set", str(rules), "--check", "--basis", "x")
    assert "version 1 is in force" in await shell("rules", *scope, "--set", str(rules), "--basis", "x")
    assert "version 1" in await shell("rules", *scope)
    assert "cannot be read" in await shell("rules", *scope, "--set", str(tmp_path / "none"), "--basis", "x", code=2)


async def test_authority_is_granted_checked_explained_listed_and_revoked(shell: Shell) -> None:
    made = await shell(
        "delegations", "grant", "--scope", shell.scope, "--to", "agent:helper", "--operation", "read",
        "--operation", "query", "--uses", "2", "--basis", "ticket 7",
    )  # fmt: skip
    id_ = made.split()[0]
    use = ("--operation", "read", "--to", "agent:helper")
    assert "permitted, 2 uses left" in await shell("delegations", "check", id_, *use)
    assert "permitted, 1 uses left" in await shell("delegations", "check", id_, *use, "--use")
    assert "in force until" in await shell("delegations", "list", "--scope", shell.scope, "--in-force")
    assert '"permitted":true' in await shell("delegations", "explain", id_, *use, "--json")
    assert "grant does not name this operation" in await shell(
        "delegations", "check", id_, "--operation", "update", "--to", "agent:helper", code=1
    )
    assert "give --basis" in await shell("delegations", "revoke", id_, code=2)
    assert "revoked" in await shell("delegations", "revoke", id_, "--basis", "over")
    assert "revoked" in await shell("delegations", "check", id_, *use, code=1)
    assert await shell("delegations", "list", "--scope", shell.scope, "--in-force") == ""


async def test_quotas_are_shown_and_set(shell: Shell, tmp_path: Path) -> None:
    wanted = tmp_path / "quotas.json"
    wanted.write_text('{"tenant": {"objects": 1000}}')
    tenant = f"tenant:quotas-{next(_numbers)}"
    await shell("tenants", "create", tenant, "--basis", "a new customer")
    whose = ("quotas", "--tenant", tenant)
    await shell(*whose, "--set", str(wanted), code=2)
    said = await shell(*whose, "--set", str(wanted), "--basis", "the contract")
    assert said == "version 1 is in force; gateways follow within seconds\n"
    shown = await shell(*whose)
    assert shown.startswith(f"{tenant}, version 1, ")
    assert "  tenant.objects: 1,000, 0 used\n" in shown
    assert "expected" in await shell(*whose, "--set", str(wanted), "--basis", "again", "--after", "0", code=1)


async def test_a_tenant_is_made_closed_opened_and_taken_off(shell: Shell) -> None:
    tenant = f"tenant:command-{next(_numbers)}"
    await shell("tenants", "create", tenant, code=2)
    assert f"{tenant}  active" in await shell("tenants", "create", tenant, "--basis", "a new customer")
    assert f"{tenant}  suspended" in await shell("tenants", "suspend", tenant, "--basis", "unpaid")
    assert f"{tenant}  active" in await shell("tenants", "resume", tenant, "--basis", "paid")
    assert "keys" in await shell("tenants", "offboard", tenant, "--dry-run")
    assert f"{tenant}  active" in await shell("tenants", "list", tenant)
    gone = await shell("tenants", "offboard", tenant, "--basis", "the contract ended")
    assert re.match(rf"{tenant}  offboard", gone)


async def test_what_consumers_parked_is_listed_replayed_and_dropped(shell: Shell, product: Product) -> None:
    """By the running services: the delegation service has no interest in a create, so a replay of one is taken in."""
    for text in ("six", "seven", "eight"):
        await shell("create", "--scope", shell.scope, "--text", text)
    conn = await asyncpg.connect(product.database_url)
    for schema, sequence in (("delegation", 1), ("delegation", 2), ("index_", 3)):
        await conn.execute(
            f"INSERT INTO {schema}.parked (scope_key, sequence, event_id, event_type, reason) "
            "SELECT l.scope_key, l.sequence, l.event_id, l.event_type, 'KeyError' FROM core.ledger l "
            "JOIN core.scope s USING (scope_key) WHERE s.scope_id = $1 AND l.sequence = $2",
            shell.scope, sequence,
        )  # fmt: skip
    tenant = await conn.fetchval("SELECT tenant_id FROM core.scope WHERE scope_id = $1", shell.scope)
    await conn.close()
    where = ("--tenant", tenant, "--scope", shell.scope)
    listed = (await shell("parked", "list", *where)).splitlines()
    assert [line.split()[0] for line in listed] == ["delegation", "delegation", "indexing"]
    assert all("object_created  KeyError  since" in line for line in listed)
    of, basis = ("--consumer", "delegation", *where), ("--basis", "mended")
    assert await shell("parked", "replay", *of, *basis) == "2 of 2 taken in\n"
    assert "Nothing is parked" in await shell("parked", "replay", *of, *basis, code=1)
    dropped = await shell("parked", "drop", "--consumer", "indexing", *where, "--sequence", "3", *basis)
    assert dropped == "1 of 1 dropped\n"
    assert await shell("parked", "list", *where) == ""


@pytest.mark.parametrize("command", ["keys", "tenants", "parked", "delegations", "subscriptions"])
def test_a_command_alone_says_what_it_can_do(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command])
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert f"usage: pamspec {command}" in said.err
    assert "show this help" in said.err
    assert "arguments are required" in said.err.splitlines()[-1]


async def test_a_scope_is_deleted(shell: Shell) -> None:
    await shell("create", "--scope", shell.scope, "--text", "six")
    await shell("scopes", "--delete", shell.scope, code=2)
    await shell("scopes", "--delete", shell.scope, "--dry-run")
    assert await shell("query", "--scope", shell.scope, "--trust", "all") != ""
    assert shell.scope in await shell("scopes", "--delete", shell.scope, "--basis", "the project ended")
    assert "scope_not_found" in await shell("query", "--scope", shell.scope, "--trust", "all", code=1)


async def test_an_index_is_listed_verified_dropped_and_rebuilt(shell: Shell) -> None:
    await shell("create", "--scope", shell.scope, "--text", "The depot opens at six.")
    async with asyncio.timeout(60):
        while "index:lexical" not in await shell("reindex", "--scope", shell.scope, "--list", "--json"):
            await asyncio.sleep(0.05)
    assert "rebuild: 1 objects" in await shell("reindex", "--scope", shell.scope)
    assert "1 objects, 0 problems" in await shell("reindex", "--scope", shell.scope, "--verify")
    assert "drop" in await shell("reindex", "--scope", shell.scope, "--drop")
    assert "dropped" in await shell("reindex", "--scope", shell.scope, "--list")
    assert "under way" in await shell("reindex", "--scope", shell.scope, "--no-wait")
