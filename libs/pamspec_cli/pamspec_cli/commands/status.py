"""`pamspec status`: what runs, on a data directory or behind PAMSPEC_URL, and how far each step lags behind a write."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

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


def _lines(document: Mapping[str, Any]) -> list[str]:
    where = (str(document[name]) for name in ("status", "gateway", "data") if document.get(name))
    lines = ["  ".join(where)]
    parts = document.get("parts")
    if isinstance(parts, dict):
        lines += [*_lagging(parts), *_services(parts)]
    if "data" in document and document["pid"] is None:
        lines.append(f"  start it with  pamspec up --data {document['data']}")
    return lines


def _lagging(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """How far each step behind a write is, in a line each; of what no service tells there is none."""
    outbox, index = parts.get("relay.outbox", {}), parts.get("indexing.index_lag", {})
    erasures, inboxes = parts.get("retention_sweeper.erasure_receipts", {}), _ending(parts, ".inbox")
    told = [
        ("outbox", _said(outbox, depth="{} waiting", oldest_s="the oldest {} s")),
        *((f"{service} behind", f"{lag} entries") for service, lag in _consumers(parts).items()),
        ("index behind", _said(index, events="{} entries", seconds="{} s")),
        ("subscribers behind", _said(parts.get("subscription.heads", {}), lag="{} entries")),
        ("parked", _said({"parked": sum(one.get("parked", 0) for one in inboxes)} if inboxes else {}, parked="{}")),
        ("erasures open", _said(erasures, open="{}", failing="{} with something left", oldest_s="the oldest {} s")),
    ]
    return [f"  {name:<20} {text}" for name, text in told if text]


def _ending(parts: Mapping[str, Mapping[str, Any]], end: str) -> list[Mapping[str, Any]]:
    return [part for name, part in parts.items() if name.endswith(end)]


def _consumers(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """By service: entries that its partitions have not taken in."""
    found: dict[str, int] = {}
    for name, part in parts.items():
        service, _, own = name.partition(".")
        if own.startswith("partition_") and "lag" in part:
            found[service] = found.get(service, 0) + int(part["lag"])
    return found


def _said(part: Mapping[str, Any], **forms: str) -> str:
    return ", ".join(form.format(part[name]) for name, form in forms.items() if name in part)


def _services(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Each service with what is not well about it; then its parts."""
    by_service: dict[str, dict[str, Mapping[str, Any]]] = {}
    for name, part in sorted(parts.items()):
        service, _, of = name.partition(".") if "." in name else ("gateway", "", name)
        by_service.setdefault(service, {})[of] = part
    lines = []
    for service, own in sorted(by_service.items()):
        bad = [name for name, part in own.items() if not part.get("ok")]
        fatal = any(own[name].get("essential") for name in bad)
        state = "not ready" if fatal else "degraded" if bad else "ready"
        lines.append(f"  {service:<20} {state}" + (f": {', '.join(bad)}" if bad else ""))
        for name, part in own.items():
            details = "  ".join(f"{key}={value}" for key, value in part.items() if key not in ("ok", "essential"))
            lines.append(f"    {'ok     ' if part.get('ok') else 'behind '} {name:<22} {details}".rstrip())
    return lines
