"""Signed checkpoints as the bus holds them.

The service does without the bus: then an anchor is unreachable, and nothing else changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import nats.errors
from nats.aio.client import Client

from pamspec_common import bus
from pamspec_common.checkpoint_bucket import CheckpointBucket
from pamspec_common.checkpoints import public_keys
from pamspec_common.ids import subject_token
from pamspec_common.streams import StreamRefused
from pamspec_common.verification.anchors import Anchor
from pamspec_query.settings import Settings


class Anchors:
    """The bucket, connected to at the first use."""

    def __init__(self, settings: Settings) -> None:
        self.texts: Mapping[str, str] = settings.checkpoint_public_keys
        """Public keys by their ids, in base64."""
        self._keys = public_keys(settings.checkpoint_public_keys)
        self._settings = settings
        self._connecting: asyncio.Task[Client] | None = None

    async def read(self, tenant_id: str, scope_id: str) -> list[Anchor]:
        """What the bucket holds of a scope, within PAMSPEC_ANCHOR_WAIT_MS; nothing where no key could check it."""
        if not self._keys:
            return []
        wait_s = self._settings.anchor_wait_ms / 1000
        try:
            async with asyncio.timeout(wait_s):
                bucket = CheckpointBucket(await self._client(), wait_s)
                held = await bucket.get(subject_token(tenant_id), subject_token(tenant_id, scope_id))
        except nats.errors.NoRespondersError:
            return [Anchor("bucket", "missing")]
        except (nats.errors.Error, StreamRefused, TimeoutError, OSError):
            return [Anchor("bucket", "unreachable")]
        return [Anchor.of("bucket", None if held is None else held.document, self._keys)]

    async def close(self) -> None:
        """Give the connection up."""
        connecting, self._connecting = self._connecting, None
        if connecting is None:
            return
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        if not connecting.cancelled() and connecting.exception() is None:
            await bus.close(connecting.result())

    async def _client(self) -> Client:
        if self._connecting is None or (self._connecting.done() and self._connecting.exception() is not None):
            self._connecting = asyncio.create_task(bus.connect(self._settings, "query"), name="anchors")
        return await asyncio.shield(self._connecting)
