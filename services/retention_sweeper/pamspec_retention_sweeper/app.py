"""The composition root of the retention sweeper."""

from __future__ import annotations

from datetime import timedelta

from pamspec_common.peers import Peer, RemotePeer, closing, peer_session
from pamspec_common.principal import TokenSigner
from pamspec_common.service import Background, Part, Service, stored_part
from pamspec_retention_sweeper.handlers.erasures import ErasureJob
from pamspec_retention_sweeper.handlers.pages import Pages
from pamspec_retention_sweeper.handlers.sweeping import Sweeping
from pamspec_retention_sweeper.settings import Settings
from pamspec_retention_sweeper.store import Store

NAME = "retention_sweeper"


class _App:
    def __init__(self, settings: Settings, write: Peer, ahead: timedelta) -> None:
        self._settings = settings
        self._background = Background()
        self._store = Store(settings)
        self._erasures = ErasureJob(self._store, settings)
        self._pages = Pages(self._store, settings)
        self._sweeping = Sweeping(self._store, write, TokenSigner.of(settings), settings, ahead)
        self.service = Service(NAME, {}, self._readiness, self._start, self._stop)

    async def _start(self) -> None:
        await self._store.open()
        self._background.spawn("erasures", lambda: self._erasures.run(self._background))
        self._background.spawn("pages", lambda: self._pages.run(self._background))
        self._background.spawn("sweeping", lambda: self._sweeping.run(self._background))

    async def _stop(self) -> None:
        await self._background.stop(self._settings.drain_s)
        await self._store.close()

    async def _readiness(self) -> list[Part]:
        stored = await stored_part(self._store.reach)
        jobs = [self._sweeping.part(), self._erasures.part(), self._pages.readiness()]
        return [stored, *jobs, *self._background.parts()]


def build(settings: Settings, write: Peer, ahead: timedelta = timedelta()) -> Service:
    """The retention sweeper; nothing runs before its `start`. `ahead` moves its clock, for tests."""
    return _App(settings, write, ahead).service


def build_remote(settings: Settings) -> Service:
    """The same in a process of its own, with the write service behind its URL; to be called in a running loop."""
    session = peer_session(settings.tls())
    return closing(build(settings, RemotePeer(session, settings.write_url, "write")), session)
