"""`pamspec subscriptions`: how a webhook fares, another try, and a new secret."""

import argparse

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_client import Client
from pamspec_client.models import CursorMoved, DeliveryPage, ParkedPage, SecretRotated

SUMMARY = "webhooks: parked and log show how one fares, replay tries again, rotate makes a new secret"

_ACTIONS = ("parked", "replay", "log", "rotate")


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("action", choices=_ACTIONS, help="what to do")
    parser.add_argument("subscription", metavar="ID", help="the subscription")
    parser.add_argument("--skip", type=int, metavar="SEQUENCE", help="with replay: pass over this parked event")
    parser.add_argument("--limit", type=int, default=20, help="with log: so many attempts, the newest (20)")
    parser.add_argument("--overlap", type=int, metavar="SECONDS", help="with rotate: earlier secrets sign for so long")
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done."""
    if arguments.skip is not None and arguments.action != "replay":
        raise Misused("--skip belongs to replay")
    if arguments.overlap is not None and arguments.action != "rotate":
        raise Misused("--overlap belongs to rotate")
    show = {"parked": _parked, "replay": _replay, "log": _log, "rotate": _rotate}[arguments.action]
    with service(arguments).client() as client:
        for line in show(client, arguments):
            print(line)
    return OK


def _parked(client: Client, arguments: argparse.Namespace) -> list[str]:
    page = ParkedPage.of(client.call("list_parked", {"subscription_id": arguments.subscription}).body)
    if arguments.json:
        return [page.raw.decode()]
    return [
        f"{one.sequence}  {one.event_id}  {one.outcome} {one.status or ''}  {one.attempts} attempts since "
        f"{one.failing_since}  next {one.next_attempt_at}"
        for one in page.parked
    ] or [f"nothing is parked; delivered up to {page.next_after_sequence}"]


def _replay(client: Client, arguments: argparse.Namespace) -> list[str]:
    request: dict[str, object] = {"subscription_id": arguments.subscription}
    if arguments.skip is not None:
        request |= {"skip": True, "sequence": arguments.skip}
    moved = CursorMoved.of(client.call("replay", request).body)
    return [moved.raw.decode() if arguments.json else f"goes on after {moved.next_after_sequence}"]


def _log(client: Client, arguments: argparse.Namespace) -> list[str]:
    asked = {"subscription_id": arguments.subscription, "pagination": {"limit": max(1, min(1000, arguments.limit))}}
    page = DeliveryPage.of(client.call("list_deliveries", asked).body)
    if arguments.json:
        return [page.raw.decode()]
    return [
        f"{one.at}  {one.outcome} {one.status or '-'}  {one.latency_ms} ms  {one.events} events "
        f"{one.first_sequence}-{one.last_sequence}"
        for one in page.deliveries
    ]


def _rotate(client: Client, arguments: argparse.Namespace) -> list[str]:
    asked = {"subscription_id": arguments.subscription}
    if arguments.overlap is not None:
        asked["overlap_s"] = arguments.overlap
    made = SecretRotated.of(client.call("rotate_webhook_secret", asked).body)
    if arguments.json:
        return [made.raw.decode()]
    return [f"the new secret, shown this once: {made.secret}", f"earlier ones sign until {made.earlier_until}"]
