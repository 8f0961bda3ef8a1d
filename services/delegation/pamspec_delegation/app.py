"""The composition root of the delegation service."""

from __future__ import annotations

from pamspec_common.asked import handler
from pamspec_common.authorization.rights import Authorizer
from pamspec_common.calls import Operations
from pamspec_common.consuming.consumer import Consumer
from pamspec_common.peers import Peer, RemotePeer, closing, peer_session
from pamspec_common.principal import TokenSigner, TokenVerifier
from pamspec_common.service import Background, Part, Service, stored_part
from pamspec_delegation.confirming import Confirmations
from pamspec_delegation.documents import Check, Explain, ListDelegations
from pamspec_delegation.handlers.checking import Checking
from pamspec_delegation.handlers.entries import Counting
from pamspec_delegation.handlers.listing import Listing
from pamspec_delegation.hints import Hints
from pamspec_delegation.settings import Settings
from pamspec_delegation.shared_cache import SharedCache
from pamspec_delegation.store import Store


class _App:
    def __init__(self, settings: Settings, write: Peer) -> None:
        self._settings = settings
        keys = settings.token_key_bytes()
        self._background = Background()
        self._store = Store(settings)
        self._confirmations = Confirmations(self._store, settings.delegation_confirm_ms / 1000)
        self._shared = SharedCache(
            settings.valkey_url, next(iter(keys.values())), settings.delegation_lifetime_ms / 1000
        )
        self._hints = Hints(settings, self._confirmations.forget)
        self._consumer = Consumer("delegation", "delegation", settings, Counting(self._confirmations.forget))
        operations = self._operations(TokenVerifier(keys, "delegation"), write)
        self.service = Service("delegation", operations, self._readiness, self._start, self._stop)

    def _operations(self, verifier: TokenVerifier, write: Peer) -> Operations:
        authorizer = Authorizer(self._store.rights)
        lifetime_s = self._settings.delegation_lifetime_ms / 1000
        checking = Checking(
            self._store,
            write,
            TokenSigner.of(self._settings),
            authorizer,
            self._confirmations,
            self._shared,
            lifetime_s,
        )
        listing = Listing(self._store, authorizer)
        return {
            "check_delegation": handler(verifier, Check, checking.check),
            "explain_delegation": handler(verifier, Explain, checking.explain),
            "list_delegations": handler(verifier, ListDelegations, listing.list_delegations),
        }

    async def _start(self) -> None:
        await self._store.open()
        await self._consumer.start(self._background)
        self._background.spawn("hints", lambda: self._hints.run(self._background))

    async def _stop(self) -> None:
        await self._background.stop(self._settings.drain_s)
        await self._consumer.stop()
        await self._hints.close()
        await self._shared.close()
        await self._store.close()

    async def _readiness(self) -> list[Part]:
        stored = await stored_part(self._store.reach)
        cached = Part("valkey", not self._shared.away, essential=False)
        return [stored, cached, *self._consumer.parts(), *self._background.parts()]


def build(settings: Settings, write: Peer) -> Service:
    """The delegation service; nothing runs before its `start`."""
    return _App(settings, write).service


def build_remote(settings: Settings) -> Service:
    """The same in a process of its own, with the write service behind its URL; to be called in a running loop."""
    session = peer_session(settings.tls())
    return closing(build(settings, RemotePeer(session, settings.write_url, "write")), session)
