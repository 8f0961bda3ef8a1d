"""The asynchronous client: one method per operation of the service, typed by its contract."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any, Unpack

from pamspec_client import requests as r
from pamspec_client.documents import FollowChannel
from pamspec_client.errors import ClientError
from pamspec_client.follow import Follow
from pamspec_client.models import Event, Imported
from pamspec_client.operations.access import Access
from pamspec_client.operations.caller import name_write
from pamspec_client.operations.delegations import Delegations
from pamspec_client.operations.indexes import Indexes
from pamspec_client.operations.keys import Keys
from pamspec_client.operations.objects import Objects
from pamspec_client.operations.reading import Reading
from pamspec_client.operations.scopes import Scopes
from pamspec_client.operations.subscriptions import Subscriptions
from pamspec_client.operations.tenants import Tenants
from pamspec_client.positions import REPLAYED
from pamspec_client.transfer import File, Progress, exported, imported
from pamspec_client.transport import RetryPolicy
from pamspec_client.wire import encode


class AsyncClient(Objects, Reading, Scopes, Subscriptions, Delegations, Indexes, Access, Keys, Tenants):
    """A client of one gateway as one principal.

    `base_url` and `api_key` default to PAMSPEC_URL and PAMSPEC_API_KEY. An address `nats://` goes over the bus, with
    the same methods except export and import. With `session=True` reads never go back behind what this client wrote or
    read before (monotonic reads); after a restore of the service the first read of a scope is
    refused with `position_outdated`. Every write carries an operation_id and an idempotency key,
    minted once per call when they are not given; a retry after a lost answer sends both again and is answered with the
    first outcome, so nothing is carried out twice. `version_conflict` is never retried.

    Use it as `async with AsyncClient() as client:` or call `aclose` at the end.
    """

    async def export(self, **request: Unpack[r.ExportRequest]) -> AsyncIterator[bytes]:
        """A scope as lines of JSON, in pieces of any size (PAMSPEC P15); write them to a file as they come.

        Raises when the export does not come to its last line: what came is no whole file then.
        """
        async for piece in exported(self._transport, encode({**request})):
            yield piece

    async def import_(
        self, file: File, *, progress: Progress | None = None, **request: Unpack[r.ImportRequest]
    ) -> Imported:
        """Take an export into a new or empty scope, all of it or nothing (PAMSPEC P15).

        `file` is a path, bytes or pieces of bytes; from a path or bytes it is sent again after a lost answer, and the
        service takes it once. `progress` is told how many bytes were sent. InvalidRequest names the line of a bad file.
        """
        document: dict[str, Any] = {name: value for name, value in request.items() if value is not None}
        name_write(document)
        reply = await imported(self._transport, document, file, progress)
        answer = Imported.of(reply.body)
        answer.__dict__["replayed"] = reply.headers.get(REPLAYED) == "true"
        return answer

    async def events(self, **request: Unpack[r.SubscribeRequest]) -> AsyncGenerator[Event, None]:
        """The events of a scope from now on, or after `after_sequence`, for as long as somebody iterates.

        Opens a subscription, follows it as `follow` does, and ends it: over NATS where the client calls over it, else
        by polls. Who leaves the loop early and not the program closes it: `async with aclosing(client.events(...))`.
        """
        channel: FollowChannel = self._own_channel
        request["channel"] = channel
        opened = await self.subscribe(**request)
        try:
            async with self.follow(opened.subscription_id, channel=channel) as events:
                async for event in events:
                    yield event
        finally:
            with suppress(ClientError):
                await self.unsubscribe(subscription_id=opened.subscription_id)

    def follow(
        self,
        subscription_id: str,
        *,
        channel: FollowChannel | None = None,
        after_sequence: int | None = None,
        max_events: int = 500,
        window: int = 10_000,
        ack_every_s: float = 1.0,
        resume_outdated: bool = False,
    ) -> Follow:
        """The events of a subscription, for as long as it lives; `async for event in client.follow(...)`.

        Reconnects by itself and goes on after the last event that the caller finished with: an event counts as
        finished when the next one is asked for. What is finished is acknowledged every `ack_every_s`, and in any case
        at the end; over poll with the next page. Delivered at least once by the service, each
        event comes out once: copies are dropped by event_id within the last `window` events. Starts at the durable
        cursor, or after `after_sequence`. Raises SubscriptionClosed at the end of the subscription, ChannelReplaced
        when another consumer takes it over, and InvalidRequest when the position belongs to an older ledger epoch,
        unless `resume_outdated` says to go on at the position that the service names. Without `channel` over NATS where
        the client calls over it, else by polls.
        """
        return Follow(
            self,
            subscription_id,
            channel=channel or self._own_channel,
            after_sequence=after_sequence,
            max_events=max_events,
            window=window,
            ack_every_s=ack_every_s,
            resume_outdated=resume_outdated,
        )


def connect(
    url: str | None = None,
    api_key: str | None = None,
    *,
    session: bool = False,
    retry: RetryPolicy | None = None,
    timeout_s: float = 30.0,
) -> AsyncClient:
    """A client over whichever way the address means: `nats://` and `tls://` the bus, `http://` and `https://` HTTP.

    `async with connect("nats://bus.example:4222", api_key=...) as memory:` has every method of the client.
    """
    return AsyncClient(url, api_key, session=session, retry=retry, timeout_s=timeout_s)
