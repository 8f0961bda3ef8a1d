"""`pamspec mcp`: the memory for a host that starts its servers itself and speaks to them over stdin and stdout."""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, get_args

from pamspec_cli.connection import FAILED, OK, Misused, add_arguments, reporting, service
from pamspec_client import AsyncClient, InvalidRequest, NoAnswer, PamspecError, ProtocolError
from pamspec_common import strict_json
from pamspec_common.calls import Answer
from pamspec_common.operating import Refused
from pamspec_mcp.app import Host
from pamspec_mcp.handlers.graph import jsonl
from pamspec_mcp.handlers.graph.reading import Place
from pamspec_mcp.model.bounds import Bounds
from pamspec_mcp.model.catalogue import Naming, ToolSet
from pamspec_mcp.stdio import serve

SUMMARY = "serve MCP over stdin and stdout; take a memory.jsonl in, or write one"
_SCOPE = "workspace:default"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--tools", default="operations", choices=get_args(ToolSet), help="the set of tools")
    parser.add_argument("--names", default="dots", choices=get_args(Naming), help="how tools are listed")
    parser.add_argument("--scope", default=_SCOPE, help=f"the scope of the knowledge graph ({_SCOPE})")
    parser.add_argument("--tokens", type=int, default=20_000, help="how large a result may be (20000)")
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--import", dest="taken", metavar="FILE", help="take a memory.jsonl into the scope, and end")
    files.add_argument("--export", dest="written", metavar="FILE", help="write the scope's memory.jsonl, and end")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when the host has closed its end; with a file 1 when lines of it were left out."""
    found = service(arguments)
    if found.url.startswith(("nats://", "tls://")):
        raise Misused("pamspec mcp speaks to a gateway over http:// or https://")
    if arguments.tokens < 4000:
        raise Misused("--tokens takes 4000 or more")
    work = _import if arguments.taken else _export if arguments.written else _serve
    return asyncio.run(_with_client(found.async_client(), work, arguments))


Work = Callable[[AsyncClient, argparse.Namespace], Coroutine[Any, Any, int]]


async def _with_client(client: AsyncClient, work: Work, arguments: argparse.Namespace) -> int:
    async with client:
        return await work(client, arguments)


async def _serve(client: AsyncClient, arguments: argparse.Namespace) -> int:
    host = Host(Through(client), arguments.tools, arguments.names, graph_scope=arguments.scope)
    await serve(host, Bounds(arguments.tokens))
    return OK


async def _import(client: AsyncClient, arguments: argparse.Namespace) -> int:
    text = Path(arguments.taken).read_text(encoding="utf-8", errors="surrogateescape")
    # A line that is no UTF-8 is none of JSON either.
    lines = ["" if not line.strip() else line if _is_utf8(line) else "?" for line in text.split("\n")]
    try:
        taken = await jsonl.take_in(Place(Through(client), arguments.scope), lines)
    except Refused as refused:
        raise InvalidRequest(str(refused.error.get("message"))) from None
    if arguments.json:
        print(json.dumps(taken._asdict()))
    else:
        print(f"{taken.entities} entities, {taken.observations} observations, {taken.relations} relations are new")
    if taken.bad_lines:
        shown = ", ".join(map(str, taken.bad_lines[:20])) + (", ..." if len(taken.bad_lines) > 20 else "")
        print(
            f"pamspec: left out, for they are no entity and no relation between entities: lines {shown}",
            file=sys.stderr,
        )
        return FAILED
    return OK


def _is_utf8(line: str) -> bool:
    return not any("\udc80" <= character <= "\udcff" for character in line)


async def _export(client: AsyncClient, arguments: argparse.Namespace) -> int:
    try:
        lines = [line async for line in jsonl.written(Place(Through(client), arguments.scope))]
    except Refused as refused:
        raise InvalidRequest(str(refused.error.get("message"))) from None
    Path(arguments.written).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(json.dumps({"lines": len(lines)}) if arguments.json else f"{len(lines)} lines in {arguments.written}")
    return OK


class Through:
    """The operations of a gateway, by the client."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def __call__(self, operation: str, document: bytes) -> Answer:
        """The answer of an operation; refusals are answers too."""
        try:
            reply = await self._client.call(operation, json.loads(document))
        except PamspecError as error:
            return Answer(error.status or 400, strict_json.dumps({"error": _envelope(error)}))
        except (NoAnswer, ProtocolError) as error:
            told: dict[str, Any] = {
                "code": "service_unavailable",
                "message": str(error),
                "retryable": True,
                "operation_id": getattr(error, "operation_id", None) or "op:unknown",
                "details": {},
            }
            return Answer(503, strict_json.dumps({"error": told}))
        return Answer(
            reply.status, reply.body, {name: reply.headers[name] for name in _HEADERS if name in reply.headers}
        )


_HEADERS = (
    "Pamspec-Ledger-Sequence",
    "Pamspec-Ledger-Epoch",
    "Pamspec-As-Of-Sequence",
    "Idempotency-Replayed",
    "ETag",
)


def _envelope(error: PamspecError) -> dict[str, Any]:
    """The error as the service told it."""
    told: dict[str, Any] = {
        "code": error.code,
        "message": error.message,
        "retryable": error.retryable,
        "operation_id": error.operation_id,
        "details": dict(error.details),
        "policy_rule_id": error.policy_rule_id,
        "correlation_id": error.correlation_id,
    }
    return {name: value for name, value in told.items() if value is not None}
