"""The composition root of the indexing service."""

from __future__ import annotations

from functools import partial

from pamspec_common.asked import handler
from pamspec_common.authorization.rights import Authorizer
from pamspec_common.calls import Operations
from pamspec_common.consuming.consumer import Consumer
from pamspec_common.peers import Peer, RemotePeer, closing, peer_session
from pamspec_common.principal import TokenSigner, TokenVerifier
from pamspec_common.service import Background, Part, Service, stored_part
from pamspec_indexing.documents import DropVectors, EmbedText, ListIndexes, OfIndex, PutVectors, Reembed, with_numbers
from pamspec_indexing.embedding.chosen import chosen
from pamspec_indexing.handlers.building import Building
from pamspec_indexing.handlers.clearing import Clearing
from pamspec_indexing.handlers.embedding import Embedding
from pamspec_indexing.handlers.entries import Indexing, Projection
from pamspec_indexing.handlers.jobs import Jobs
from pamspec_indexing.handlers.lag import Lag
from pamspec_indexing.handlers.lexical import Lexical
from pamspec_indexing.handlers.listing import Listing
from pamspec_indexing.handlers.putting import Putting
from pamspec_indexing.handlers.remaking import Registrar, Remaking
from pamspec_indexing.handlers.spaces import Spaces
from pamspec_indexing.handlers.telling import Telling
from pamspec_indexing.handlers.vectors import Vectors
from pamspec_indexing.settings import Settings
from pamspec_indexing.store import Store


class _App:
    def __init__(self, settings: Settings, write: Peer) -> None:
        self._settings, self._write = settings, write
        self._background = Background()
        self._store = Store(settings)
        signer = TokenSigner.of(settings)
        self._embedders = chosen(settings)
        self._registrar = Registrar(self._store, write, signer)
        poll_s, every_s = settings.embedder_poll_ms / 1000, settings.index_cleaning_ms / 1000
        self._embedding = [
            Embedding(self._store, one, self._registrar.of_scope, settings.embedder_batch, poll_s)
            for one in self._embedders
        ]
        own = self._embedders[0].space.embedding_space_id if self._embedders else None
        self._spaces = Spaces(self._store, own, every_s)
        self._telling = Telling(self._store, write, signer, every_s)
        rebuildable = [Lexical()]
        projections: list[Projection] = [*rebuildable, Vectors(own, self._wake)]
        self._index_ids = [one.index_id for one in rebuildable]
        self._lag = Lag(self._store, settings.index_lag_s)
        self._consumer = Consumer("indexing", "index_", settings, Indexing(projections))
        self._clearing = Clearing(self._store, projections, settings.index_cleaning_ms / 1000)
        self._building = Building(self._store, write, signer, rebuildable, settings.index_job_poll_ms / 1000)
        operations = self._operations(TokenVerifier(settings.token_key_bytes(), "indexing"))
        self.service = Service("indexing", operations, self._readiness, self._start, self._stop)

    def _operations(self, verifier: TokenVerifier) -> Operations:
        authorizer = Authorizer(self._store.rights)
        listing = Listing(self._store, authorizer)
        jobs = Jobs(self._store, authorizer, self._index_ids)
        putting = Putting(self._store, authorizer, self._settings.vector_wait_ms / 1000)
        embedders = {one.space.embedding_space_id: one for one in self._embedders}
        remaking = Remaking(self._store, authorizer, embedders, self._registrar, self._settings.embedder_wait_s)
        return {
            "list_indexes": handler(verifier, ListIndexes, listing.list_indexes),
            "rebuild_index": handler(verifier, OfIndex, jobs.rebuild),
            "drop_index": handler(verifier, OfIndex, jobs.drop),
            "verify_index": handler(verifier, OfIndex, jobs.verify),
            "put_vectors": handler(verifier, PutVectors, putting.put_vectors, with_numbers),
            "embed_text": handler(verifier, EmbedText, remaking.embed_text),
            "reembed": handler(verifier, Reembed, remaking.reembed),
            "drop_vectors": handler(verifier, DropVectors, remaking.drop_vectors),
        }

    def _wake(self) -> None:
        for one in self._embedding:
            one.work.set()

    async def _start(self) -> None:
        await self._store.open()
        await self._consumer.start(self._background)
        self._background.spawn("building", lambda: self._building.run(self._background))
        self._background.spawn("lag", lambda: self._lag.run(self._background))
        self._background.spawn("clearing", lambda: self._clearing.run(self._background))
        self._background.spawn("spaces", lambda: self._spaces.run(self._background))
        self._background.spawn("telling", lambda: self._telling.run(self._background))
        for embedder, loop in zip(self._embedders, self._embedding, strict=True):
            await embedder.start()
            self._background.spawn(
                f"embedding {embedder.space.embedding_space_id}", partial(loop.run, self._background)
            )

    async def _stop(self) -> None:
        # What was taken from the queue is put back before the loops are cancelled.
        self._background.stopping.set()
        for embedder in self._embedders:
            await embedder.stop()
        await self._background.stop(self._settings.drain_s)
        await self._consumer.stop()
        await self._store.close()

    async def _readiness(self) -> list[Part]:
        stored = await stored_part(self._store.reach)
        made = [embedder.part() for embedder in self._embedders]
        return [stored, self._lag.part(), *self._consumer.parts(), *self._background.parts(), *made]


def build(settings: Settings, write: Peer) -> Service:
    """The indexing service; nothing runs before its `start`."""
    return _App(settings, write).service


def build_remote(settings: Settings) -> Service:
    """The same in a process of its own, with the write service behind its URL; to be called in a running loop."""
    session = peer_session(settings.tls())
    return closing(build(settings, RemotePeer(session, settings.write_url)), session)
