"""`pamspec status`: what runs on a data directory, and whether each part keeps up."""

import argparse
import asyncio
import json
import os
import sys

import aiohttp

from pamspec_cli.data import DataDirectory, chosen

SUMMARY = "show the parts of a running service, their lag and positions"
_ANSWER_SECONDS = 5


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--data", metavar="DIR", help="the data directory (PAMSPEC_DATA, else ./.data)")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of lines")


def run(arguments: argparse.Namespace) -> int:
    """0 when the service takes work (ready, or degraded: a part lags), 1 otherwise.

    PAMSPEC_URL names a service that runs elsewhere, unless a data directory is named.
    """
    elsewhere = os.environ.get("PAMSPEC_URL")
    if elsewhere and not arguments.data and not os.environ.get("PAMSPEC_DATA"):
        return _tell({"gateway": elsewhere} | asyncio.run(_readiness(elsewhere.rstrip("/"))), arguments.json)
    data = DataDirectory(chosen(arguments.data))
    owner, noted = data.owner(), data.noted()
    gateway = noted.get("gateway")
    document: dict[str, object] = {"data": str(data.path), "pid": owner, "gateway": gateway, "status": "stopped"}
    if owner is not None:
        answer = asyncio.run(_readiness(gateway)) if isinstance(gateway, str) else {"status": "starting"}
        document |= answer | {"mode": noted.get("mode"), "processes": noted.get("processes", {})}
    return _tell(document, arguments.json)


def _tell(document: dict[str, object], as_json: bool) -> int:
    if as_json:
        json.dump(document, sys.stdout, indent=2)
        print()
    else:
        for line in _lines(document):
            print(line)
    return 0 if document["status"] in ("ready", "degraded") else 1


async def _readiness(gateway: str) -> dict[str, object]:
    timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{gateway}/readyz") as answer:
            found = await answer.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, OSError, json.JSONDecodeError):
        return {"status": "unreachable"}
    return found if isinstance(found, dict) else {"status": "unreachable"}


def _lines(document: dict[str, object]) -> list[str]:
    where = (str(document[name]) for name in ("status", "gateway", "data") if document.get(name))
    lines = ["  ".join(where)]
    parts = document.get("parts")
    for name, part in sorted(parts.items()) if isinstance(parts, dict) else ():
        details = "  ".join(f"{key}={value}" for key, value in part.items() if key not in ("ok", "essential"))
        lines.append(f"  {'ok     ' if part.get('ok') else 'behind '} {name:<24} {details}".rstrip())
    if "data" in document and document["pid"] is None:
        lines.append(f"  start it with  pamspec up --data {document['data']}")
    return lines
