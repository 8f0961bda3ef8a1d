"""`pamspec subscribe`: open, list and end durable subscriptions."""

import argparse
import json
from typing import Any

from pamspec_cli.connection import OK, Misused, add_arguments, reporting, service
from pamspec_client import Client
from pamspec_client.models import Subscribed, SubscriptionPage

SUMMARY = "open a durable subscription; --list and --end manage them"


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--scope", help="the scope")
    parser.add_argument("--list", action="store_true", help="show the subscriptions, of --scope or of all")
    parser.add_argument("--end", metavar="ID", help="end this subscription for good")
    add_filter(parser)
    parser.add_argument("--channel", default="poll", choices=("poll", "sse", "websocket", "nats", "webhook"))
    parser.add_argument("--webhook", metavar="URL", help="where the service sends the events, for the channel webhook")
    add_arguments(parser)


def add_filter(parser: argparse.ArgumentParser) -> None:
    """Declares what is delivered."""
    parser.add_argument("--after", type=int, metavar="SEQUENCE", help="start after this ledger sequence (0: all)")
    parser.add_argument("--event", action="append", metavar="TYPE", help="only this event type; several times")
    parser.add_argument("--type", metavar="OBJECT_TYPE", help="only events of objects of this type")
    parser.add_argument("--object-id", metavar="ID", help="only events of this object")
    parser.add_argument("--content", action="store_true", help="deliver the version of each event along with it")


def request(arguments: argparse.Namespace, channel: str) -> dict[str, Any]:
    """The document of a subscribe; Misused without a scope."""
    if not arguments.scope:
        raise Misused("name the scope, for example  --scope workspace:default")
    chosen = {
        "event_classes": arguments.event,
        "object_type": arguments.type,
        "object_id": arguments.object_id,
    }
    return {
        "scope_id": arguments.scope,
        "filter": {name: value for name, value in chosen.items() if value},
        "after_sequence": arguments.after,
        "channel": channel,
        "include_content": arguments.content,
    }


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when it was done."""
    with service(arguments).client() as client:
        if arguments.list:
            return _list(client, arguments)
        if arguments.end:
            ended = client.unsubscribe(subscription_id=arguments.end)
            print(ended.raw.decode() if arguments.json else f"{ended.subscription_id}  closed: {ended.closed.reason}")
            return OK
        document = request(arguments, arguments.channel)
        if arguments.webhook:
            document["webhook"] = {"url": arguments.webhook}
        reply = client.call("subscribe", document)
    if arguments.json:
        print(reply.body.decode())
        return OK
    made = Subscribed.of(reply.body)
    print(f"{made.subscription_id}  {made.channel}  after sequence {made.start_sequence}  {made.channel_ref}")
    if made.webhook is not None:
        print(f"the secret of its signatures, shown this once: {made.webhook.secret or '(shown before; rotate it)'}")
        print(f"how it fares:  pamspec subscriptions log {made.subscription_id}")
        return OK
    print(f"follow it with  pamspec tail --subscription {made.subscription_id} --channel {made.channel}")
    return OK


def _list(client: Client, arguments: argparse.Namespace) -> int:
    cursor: str | None = None
    while True:
        asked = {"scope_id": arguments.scope, "limit": 1000, "cursor": cursor}
        page = SubscriptionPage.of(client.call("list_subscriptions", asked).body)
        if arguments.json:
            print(page.raw.decode())
        for entry in () if arguments.json else page.subscriptions:
            found, filters = entry.subscription, json.dumps(entry.subscription["filter"])
            ended = f"closed: {entry.closed.reason}" if entry.closed else f"acknowledged {entry.next_after_sequence}"
            print(f"{found['subscription_id']}  {found['scope_id']}  {entry.channel}  {ended}  {filters}")
        cursor = page.next_cursor
        if not cursor:
            return OK
