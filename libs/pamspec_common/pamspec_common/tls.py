"""TLS with certificates that are replaced while the process runs.

Invariant: a handshake uses the files as they were at most `LOOK_S` ago; connections that are open stay as they began.
Files that do not fit together (a replacement that is under way) change nothing: what was loaded before stays in use.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOOK_S = 1.0
"""How long a handshake may use what was read before, without another look at the files."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TlsFiles:
    """Files in PEM: the chain and key that this process shows, and the authorities that it trusts.

    Without a certificate it shows none; without authorities it trusts those of the system.
    """

    certificate: Path | None = None
    key: Path | None = None
    authorities: Path | None = None

    def state(self) -> tuple[tuple[int, int, int], ...]:
        """What changes whenever a file is replaced or written; OSError for one that is not there."""
        found = (path.stat() for path in (self.certificate, self.key, self.authorities) if path is not None)
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in found)


class UnusableFiles(ValueError):
    """The files that the settings name can't be used for TLS."""


class _Told(ssl.SSLObject):
    """The server's side of a connection: why a handshake failed is logged, which the client need not hear."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError):
            raise
        except ssl.SSLError as error:
            _log.warning("a TLS handshake was refused: %s", error, extra={"action": "tls_refused"})
            raise


class RenewedContext(ssl.SSLContext):
    """A context whose every handshake goes by the present files; event loops, aiohttp and nats take it as any other."""

    _load: Callable[[], ssl.SSLContext]
    _files: TlsFiles
    _current: ssl.SSLContext
    _state: tuple[tuple[int, int, int], ...]
    _looked_at: float

    @classmethod
    def of(cls, protocol: int, files: TlsFiles, load: Callable[[], ssl.SSLContext]) -> RenewedContext:
        """The context; UnusableFiles where the files can't be used from the first."""
        context = cls(protocol)
        context._load, context._files = load, files
        try:
            context._state, context._current = files.state(), load()
        except (OSError, ValueError) as error:
            named = ", ".join(str(path) for path in (files.certificate, files.key, files.authorities) if path)
            raise UnusableFiles(f"TLS files can't be used ({named}): {error}") from None
        context._looked_at = time.monotonic()
        return context

    def current(self) -> ssl.SSLContext:
        """What the files say now."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return self._current
        self._looked_at = now
        try:
            state = self._files.state()
            if state != self._state:
                self._current = self._load()
                self._state = state
                _log.info("certificates were replaced", extra={"action": "tls_renewed"})
        except (OSError, ValueError) as error:
            _log.warning("new TLS files can't be used yet: %s", error, extra={"action": "tls_files_unusable"})
        return self._current

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return self.current().wrap_bio(*arguments, **options)

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return self.current().wrap_socket(*arguments, **options)


def server_context(files: TlsFiles, *, client_certificates: bool) -> RenewedContext:
    """What a server shows. With `client_certificates` those of other authorities, and expired ones, end the handshake.

    A client may still show none: whoever lets requests in has to ask for the name. No session is resumed, so every
    connection is checked anew.
    """

    def load() -> ssl.SSLContext:
        assert files.certificate is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(files.certificate, files.key)
        context.sslobject_class = _Told
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        if client_certificates:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(files.authorities)
        return context

    return RenewedContext.of(ssl.PROTOCOL_TLS_SERVER, files, load)


def client_context(files: TlsFiles) -> RenewedContext:
    """What a client shows and trusts; the server's name is always checked."""

    def load() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=files.authorities)
        if files.certificate is not None:
            context.load_cert_chain(files.certificate, files.key)
        return context

    return RenewedContext.of(ssl.PROTOCOL_TLS_CLIENT, files, load)


def names_of(certificate: Any) -> frozenset[str]:
    """The names that a verified certificate stands for (subject alternative names: DNS and URI); of none, none."""
    alternatives = certificate.get("subjectAltName", ()) if certificate else ()
    return frozenset(value for kind, value in alternatives if kind in ("DNS", "URI"))
