"""`pamspec tail`: a scope's events as they happen."""

import argparse
import contextlib
import sys

from pamspec_cli.commands.subscribe import add_filter, request
from pamspec_cli.connection import OK, add_arguments, reporting, service
from pamspec_cli.showing import event_line
from pamspec_client import Client, ClientError, Event
from pamspec_client.models import Subscribed

SUMMARY = "show a scope's events live, until Ctrl-C"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("named_scope", metavar="SCOPE", nargs="?", help="the scope")
    parser.add_argument("--scope", help="the scope, in the way of the other commands")
    parser.add_argument("--subscription", metavar="ID", help="follow this durable subscription, and keep it")
    parser.add_argument("--channel", default="sse", choices=("poll", "sse", "websocket", "nats"))
    parser.add_argument("--count", type=int, metavar="N", help="end after N events")
    add_filter(parser)
    add_arguments(parser)


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 after --count events or Ctrl-C; a subscription of our own is ended."""
    arguments.scope = arguments.named_scope or arguments.scope
    with service(arguments).client() as client:
        if arguments.subscription:
            return _follow(client, arguments, arguments.subscription)
        channel = arguments.channel
        made = Subscribed.of(client.call("subscribe", request(arguments, channel)).body)
        try:
            return _follow(client, arguments, made.subscription_id)
        finally:
            with contextlib.suppress(ClientError):
                client.unsubscribe(subscription_id=made.subscription_id)


def _follow(client: Client, arguments: argparse.Namespace, subscription_id: str) -> int:
    seen = 0
    if sys.stderr.isatty():
        print(f"waiting for events of {arguments.subscription or arguments.scope}; Ctrl-C ends", file=sys.stderr)
    events = client.follow(subscription_id, channel=arguments.channel)
    try:
        for event in events:
            print(_line(event, as_json=arguments.json), flush=True)
            seen += 1
            if arguments.count and seen >= arguments.count:
                client.ack(subscription_id=subscription_id, sequence=event.sequence)
                break
    except KeyboardInterrupt:
        return OK
    return OK


def _line(event: Event, *, as_json: bool) -> str:
    if not as_json:
        return event_line(event)
    if event.envelope is None:
        return event.raw.decode()
    return f'{{"envelope":{event.envelope.raw.decode()},"event":{event.raw.decode()}}}'
