"""The command as a host starts it: the SDK's own client over its stdin and stdout, two hosts at once, and files."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters

from libs.pamspec_mcp.tests.conftest import MODES, host, made
from libs.pamspec_mcp.tests.test_graph import done, entity, relation
from libs.pamspec_mcp.tests.test_resources import open_subscriptions, watching
from pamspec_mcp.model import catalogue, uris
from pamspec_mcp.model.graph_tools import TOOLS
from services.gateway.tests.whole import SCOPE, Whole

COMMAND = [sys.executable, "-m", "pamspec_cli", "mcp"]


def environment(whole: Whole, key: str) -> dict[str, str]:
    """What a host's configuration sets."""
    return {**os.environ, "PAMSPEC_URL": whole.url, "PAMSPEC_API_KEY": key}


@asynccontextmanager
async def started(whole: Whole, *arguments: str, key: str | None = None, **options: object) -> AsyncIterator[Client]:
    """A host that starts the command."""
    parameters = StdioServerParameters(
        command=COMMAND[0], args=[*COMMAND[1:], *arguments], env=environment(whole, key or whole.key)
    )
    async with Client(parameters, **options) as client:  # type: ignore[arg-type]
        yield client


async def ran(whole: Whole, *arguments: str) -> tuple[int | None, str, str]:
    """Exit code, output and errors of the command."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        env=environment(whole, whole.key),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


@pytest.mark.parametrize("mode", MODES)
async def test_a_host_that_starts_the_command_shares_the_memory_of_one_over_http(whole: Whole, mode: str) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()

    async def heard(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            await told.put(str(message.params.uri))

    before = await open_subscriptions(whole)
    async with (
        host(whole.url, whole.key, mode=mode) as other,
        started(whole, "--names", "underscores", mode=mode, message_handler=heard) as client,
    ):
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names <= {f"pamspec_{name}" for name in (*catalogue.operations(), "continue")}
        first = await made(client, "Written over stdio: 🏗 ä ☂.")
        ids = {"scope_id": SCOPE, "object_id": first["object_id"]}
        read = await other.call_tool("pamspec.read", ids)
        assert read.structured_content["envelope"] == first["envelope"]
        where = uris.address(SCOPE, "object", first["object_id"])
        async with watching(client, mode, told, where):
            assert len(await open_subscriptions(whole) - before) == 1
            changed = await other.call_tool(
                "pamspec.update",
                {
                    **ids,
                    "expected_version_id": first["version_id"],
                    "canonical_content": {"statement": "Changed over HTTP."},
                    "provenance": {"activity": "told"},
                },
            )
            assert not changed.is_error, changed
            async with asyncio.timeout(60):
                assert await told.get() == where
        again = await client.call_tool("pamspec_read", {"scope_id": SCOPE, "object_id": "obj:none"})
        assert again.is_error
        assert again.structured_content["error"]["code"] == "object_not_found"
    async with asyncio.timeout(60):
        while await open_subscriptions(whole) - before:
            await asyncio.sleep(0.05)


async def test_a_host_of_another_tenant_sees_nothing(whole: Whole, stranger: str) -> None:
    async with started(whole, key=stranger) as client:
        answer = await client.call_tool("pamspec.get_scope", {"scope_id": SCOPE})
        assert answer.structured_content["error"]["code"] == "scope_not_found"
        with pytest.raises(MCPError):
            await client.read_resource(uris.address(SCOPE))


async def test_a_key_that_opens_nothing_is_told_by_every_tool(whole: Whole) -> None:
    async with started(whole, key="pam_nonsense") as client:
        answer = await client.call_tool("pamspec.list_scopes", {})
        assert answer.is_error
        assert answer.structured_content["error"]["code"] == "access_denied"


async def test_memory_files_go_in_and_come_out(whole: Whole, tmp_path: Path) -> None:
    status, body = await whole.post("create_scope", {"scope_id": "workspace:file"})
    assert status == 200, body
    ada, bert = entity("Ada 🏗", "speaks\nWelsh", "likes “tea”"), entity("Bert")
    knows = relation("Ada 🏗", "knows", "Bert")
    lines = [
        json.dumps({"type": "entity", **ada}),
        "",
        "{not json",
        json.dumps({"type": "entity", **bert}),
        json.dumps({"type": "relation", **relation("Ada 🏗", "knows", "Nobody")}),
        json.dumps({"type": "relation", **knows}),
        json.dumps({"type": "nothing"}),
    ]
    file = tmp_path / "memory.jsonl"
    file.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n")
    into = ["--scope", "workspace:file", "--json"]
    code, output, errors = await ran(whole, "--import", str(file), *into)
    assert code == 1, errors
    assert json.loads(output) == {"entities": 2, "observations": 2, "relations": 1, "bad_lines": [3, 5, 7, 8]}
    assert "lines 3, 5, 7, 8" in errors
    code, output, _ = await ran(whole, "--import", str(file), *into)
    assert json.loads(output)["entities"] == json.loads(output)["observations"] == 0
    async with started(whole, "--tools", "graph", "--scope", "workspace:file") as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == set(TOOLS)
        assert await done(client, "read_graph") == {"entities": [ada, bert], "relations": [knows]}
    written = tmp_path / "written.jsonl"
    code, output, errors = await ran(whole, "--export", str(written), *into)
    assert (code, json.loads(output)) == (0, {"lines": 3}), errors
    documents = [json.loads(line) for line in written.read_text(encoding="utf-8").splitlines()]
    assert documents == [{"type": "entity", **ada}, {"type": "entity", **bert}, {"type": "relation", **knows}]
