"""The composition root of the write service: the only writer of versions and ledger."""

from __future__ import annotations

import logging

import nats.errors
from nats.aio.client import Client

from pamspec_common import bus
from pamspec_common.authorization.loading import loading
from pamspec_common.authorization.rights import Authorizer
from pamspec_common.calls import Answer, Call, Handler, Operations
from pamspec_common.denials import Denials
from pamspec_common.errors import PamspecError, ServiceUnavailable
from pamspec_common.internal import answer as answered
from pamspec_common.postgres import KEYED_PLANS, Pool, close_pool, connection, create_pool
from pamspec_common.principal import TokenSigner, TokenVerifier
from pamspec_common.service import Background, Part, Service
from pamspec_write.handlers.access import access_of
from pamspec_write.handlers.administration import Administration
from pamspec_write.handlers.deleting import DeletionJob
from pamspec_write.handlers.denials import DenialRecords
from pamspec_write.handlers.forgetting import ForgetJob, Forgets
from pamspec_write.handlers.grants import Grants
from pamspec_write.handlers.holds import HoldJob
from pamspec_write.handlers.importing import Asked, Chunks, Imports
from pamspec_write.handlers.keys import Keys
from pamspec_write.handlers.lanes import Lanes
from pamspec_write.handlers.lookup import Lookup
from pamspec_write.handlers.operations import OPERATIONS, Writes
from pamspec_write.handlers.outbox import OutboxBound
from pamspec_write.handlers.parked import ParkedEntries
from pamspec_write.handlers.quotas import TenantQuotas
from pamspec_write.handlers.scopes import Scopes
from pamspec_write.handlers.spaces import EmbeddingSpaces, unknown_spaces_of
from pamspec_write.handlers.uses import UseJob
from pamspec_write.import_door import ImportDoor
from pamspec_write.model.content import CONTENT_TYPES, standard_schema
from pamspec_write.queries.sealing import know_keys
from pamspec_write.settings import Settings

_log = logging.getLogger(__name__)


class _App:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.background = Background()
        self._operations: Operations = {}
        handlers = {name: self._handler(name) for name in OPERATIONS}
        self._imports: Imports | None = None
        door = ImportDoor(TokenVerifier(settings.token_key_bytes(), "write"), self._import)
        self.service = Service("write", handlers, self.readiness, self.start, self.stop, app=door)
        self._pool: Pool | None = None
        self._lanes: Lanes | None = None
        self._outbox: OutboxBound | None = None
        self._bus: Client | None = None
        self._denials = Denials("write", TokenSigner.of(settings), self._tell, settings.denial_window_s)

    async def start(self) -> None:
        settings = self.settings
        pool = self._pool = await create_pool(settings, "write", planner=KEYED_PLANS, content=True)
        async with connection(pool, 5000) as conn:
            await conn.fetchval("SELECT 1 FROM core.scope_head LIMIT 1")
            await know_keys(conn)
        authorizer = Authorizer(loading(pool, settings.pool_wait_ms))
        lanes = self._lanes = Lanes(pool, settings, authorizer, self._wake)
        scopes = Scopes(pool, settings)
        outbox = self._outbox = OutboxBound(pool, settings)
        grants = Grants(pool, settings, scopes.resolve)
        access = access_of(scopes.resolve, authorizer, grants.find, unknown_spaces_of(pool, settings))
        lookup = Lookup(pool, settings, access, scopes, lanes)
        for object_type in CONTENT_TYPES:
            standard_schema(object_type)
        verifier = TokenVerifier(settings.token_key_bytes(), "write")
        pepper = None if settings.key_pepper is None else settings.key_pepper.get_secret_value().encode()
        administration = Administration(pool, settings, access, authorizer, Keys(pepper))
        records = DenialRecords(pool, settings, access, lanes)
        quotas = TenantQuotas(pool, settings, access)
        spaces = EmbeddingSpaces(pool, settings, access)
        self._operations = Writes(
            verifier,
            access,
            scopes,
            lanes,
            lookup,
            outbox,
            administration,
            self._denials,
            records,
            quotas,
            Forgets(pool, settings, access),
            spaces,
            ParkedEntries(pool, settings, access),
        ).operations()
        self._imports = Imports(pool, settings, access, outbox, self._wake)
        self.background.spawn("outbox", lambda: outbox.watch(self.background))
        self.background.spawn("bus", self._connect)
        self.background.spawn("denials", lambda: self._denials.run(self.background))
        holds = HoldJob(pool, settings, lanes)
        self.background.spawn("holds", lambda: holds.run(self.background))
        uses = UseJob(pool, settings, lanes, grants)
        self.background.spawn("uses", lambda: uses.run(self.background))
        forgets = ForgetJob(pool, settings, lanes)
        self.background.spawn("forgets", lambda: forgets.run(self.background))
        deletions = DeletionJob(pool, settings)
        self.background.spawn("deletions", lambda: deletions.run(self.background))

    def _handler(self, operation: str) -> Handler:
        async def handle(call: Call) -> Answer:
            handler = self._operations.get(operation)
            if handler is None:
                raise ServiceUnavailable("The service is starting; try again with the same key.")
            return await handler(call)

        return handle

    async def _tell(self, call: Call) -> Answer:
        return await answered(self._operations, call, "write")

    async def _import(self, asked: Asked, chunks: Chunks) -> Answer:
        if self._imports is None:
            raise ServiceUnavailable("The service is starting; try again with the same file.")
        try:
            return await self._imports.run(asked, chunks)
        except PamspecError as error:
            self._denials.note(asked.principal, "import", {"scope_id": asked.request.scope_id}, error)
            raise

    async def _connect(self) -> None:
        """Keep a connection to the bus for the wake-ups; without it the relay's poll finds the rows."""
        self._bus = await bus.connect(self.settings, "write")
        await self.background.stopping.wait()

    async def _wake(self, partition: int) -> None:
        """Hint to the relay; a lost hint costs its poll interval, so a bus in trouble is no matter here."""
        if self._bus is not None and self._bus.is_connected:
            try:
                await self._bus.publish(bus.wake_subject(partition), b"")
            except (nats.errors.Error, OSError) as error:
                _log.info("wake-up not sent: %s", error, extra={"action": "wake_failed"})

    async def stop(self) -> None:
        if self._lanes is not None:
            await self._denials.close(self.settings.drain_s / 4)
            await self._lanes.close(self.settings.drain_s)
        await self.background.stop(1.0)
        await bus.close(self._bus)
        await close_pool(self._pool, 1.0)

    async def readiness(self) -> list[Part]:
        parts = [part for part in self.background.parts() if part.name != "outbox"]
        if self._outbox is not None and self._lanes is not None:
            parts += [*self._outbox.parts(), Part("lanes", True, {"waiting": self._lanes.waiting})]
        return parts


def build(settings: Settings) -> Service:
    """The write service; nothing runs before its `start`."""
    return _App(settings).service
