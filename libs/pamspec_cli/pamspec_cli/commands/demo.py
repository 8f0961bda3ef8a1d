"""`pamspec demo`: conversations become memory while followers over several channels watch."""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast, get_args

from pamspec_cli.connection import FAILED, OK, Misused, Service, add_arguments, reporting, service
from pamspec_cli.demo.conversations import Conversation, NoConversation, read_folder, sample
from pamspec_cli.demo.following import Follower, Verdict
from pamspec_cli.demo.run import Summary, demonstrate
from pamspec_cli.showing import brief
from pamspec_client import Event
from pamspec_client.documents import FollowChannel

SUMMARY = "store conversations and follow them over poll, SSE and NATS"
_EVERY_TURNS = 100


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--conversations", metavar="DIR", help="a folder of conversations (else two of our own)")
    parser.add_argument("--channels", default="poll,sse,nats", help="how to follow (default: poll,sse,nats)")
    parser.add_argument("--writers", type=int, default=8, help="conversations written at once (default: 8)")
    parser.add_argument("--rate", type=float, default=100.0, help="writes per second, together; 0: as fast as it goes")
    parser.add_argument("--quiet", action="store_true", help="print progress and the summary alone")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when every follower received every acknowledged event exactly once and in ledger order."""
    channels = _channels(arguments.channels)
    target = service(arguments)
    if "nats" in channels and target.nats is None:
        raise Misused("no NATS login: set PAMSPEC_DATA or PAMSPEC_AGENT_NATS_URL, or give --channels poll,sse")
    summary = asyncio.run(_run(target, _conversations(arguments.conversations), channels, arguments))
    if arguments.json:
        print(json.dumps(summary.document(), indent=2))
    else:
        for line in _lines(summary):
            print(line)
    return OK if summary.ok else FAILED


def _channels(text: str) -> list[FollowChannel]:
    known = get_args(FollowChannel)
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    if not chosen or any(name not in known for name in chosen):
        raise Misused(f"--channels takes some of {', '.join(known)}")
    return cast(list[FollowChannel], chosen)


def _conversations(folder: str | None) -> list[Conversation]:
    try:
        return sample() if folder is None else read_folder(Path(folder))
    except NoConversation as error:
        raise Misused(str(error)) from None


async def _run(
    target: Service,
    conversations: list[Conversation],
    channels: list[FollowChannel],
    arguments: argparse.Namespace,
) -> Summary:
    silent = arguments.json or arguments.quiet

    def shown(follower: Follower, event: Event) -> None:
        if not silent:
            print(_said(follower, event), flush=True)

    def progress(done: int, total: int) -> None:
        if not arguments.json and (done % _EVERY_TURNS == 0 or done == total):
            print(f"{done} of {total} turns are stored", file=sys.stderr, flush=True)

    async with target.async_client() as client:
        return await demonstrate(
            client,
            conversations,
            channels,
            writers=arguments.writers,
            per_second=arguments.rate,
            shown=shown,
            progress=progress,
        )


def _said(follower: Follower, event: Event) -> str:
    content: Any = event.envelope.content if event.envelope is not None else {}
    text = f"{content['speaker']}: {content['text']}" if isinstance(content, dict) and "speaker" in content else ""
    return f"{follower.channel:<9} {follower.scope_id} #{event.sequence:<5} {brief(text, 90)}"


def _lines(summary: Summary) -> list[str]:
    document = summary.document()
    lines = [
        f"{document['acknowledged']} of {summary.turns} turns of {summary.conversations} conversations are stored, "
        f"{summary.replayed} of them before this run, in {summary.seconds:.1f} s"
    ]
    lines += [_judged(verdict) for verdict in summary.verdicts]
    lines.append("every follower received every event once and in order" if summary.ok else "the comparison FAILED")
    return lines


def _judged(verdict: Verdict) -> str:
    mark = "ok    " if verdict.ok else "FAILED"
    return (
        f"  {mark} {verdict.channel:<9} {verdict.scope_id:<28} {verdict.received} received, "
        f"{len(verdict.missing)} missing, {verdict.repeated} repeated, {verdict.out_of_order} out of order, "
        f"{verdict.others} others, {verdict.copies_dropped} copies dropped, {verdict.reconnects} reconnects"
    )
