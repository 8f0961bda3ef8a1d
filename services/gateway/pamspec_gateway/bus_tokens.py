"""What the bus server and the gateway tell each other about a login: JWTs signed with Ed25519, sealed with X25519.

Invariants: a request counts only when it is signed by the server that it names, is for us and has not ended; where a
curve key is set, nothing travels unsealed in either direction. This module does no I/O and reads no clock.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson
from nacl.exceptions import CryptoError
from nacl.public import Box, PrivateKey, PublicKey
from nacl.signing import SigningKey, VerifyKey

from pamspec_common.nkey import Kind, public_bytes, public_text, seed_bytes

_HEADER = b'{"typ":"JWT","alg":"ed25519-nkey"}'
_ALGORITHMS = frozenset(("ed25519-nkey", "ed25519"))
_AUDIENCE = "nats-authorization-request"
_SEAL = b"xkv1"
_NONCE = 24
_MAX_REQUEST = 64 * 1024


class NotAsked(ValueError):
    """What came is no login request of a server of ours."""


class LoginRequest(msgspec.Struct, frozen=True):
    """A connection that waits to be let in."""

    server_id: str
    user_nkey: str
    """The key that the server gave the connection; the answer is for it alone."""
    connection_id: int
    host: str
    name: str
    """As the client calls its connection."""
    credential: str = msgspec.field(default="")
    """The API key or signed token. Never shown."""
    expires: int = 0
    """When the server no longer waits, in Unix seconds."""
    server_xkey: str | None = None

    def __repr__(self) -> str:
        return f"LoginRequest({self.server_id}, {self.connection_id})"


class Permissions(msgspec.Struct, frozen=True):
    """What a connection may do."""

    publish: list[str]
    subscribe: list[str]
    subscriptions: int
    payload: int


class BusTokens:
    """Reads requests of servers and writes answers under the account key that servers trust."""

    def __init__(self, issuer_seed: str, xkey_seed: str | None, account: str) -> None:
        self._signing = SigningKey(seed_bytes(issuer_seed, Kind.ACCOUNT))
        self._issuer = public_text(Kind.ACCOUNT, bytes(self._signing.verify_key))
        self._curve = PrivateKey(seed_bytes(xkey_seed, Kind.CURVE)) if xkey_seed else None
        self._account = account

    def read(self, data: bytes, headers: Mapping[str, str], now: float) -> LoginRequest:
        """The request in a message; NotAsked when it is forged, sealed for somebody else, or over."""
        if len(data) > _MAX_REQUEST:
            raise NotAsked("too large")
        xkey = headers.get("Nats-Server-Xkey")
        try:
            claims = self._verified(self._opened(data, xkey))
            asked = claims["nats"]
            server, client, options = asked["server_id"], asked["client_info"], asked["connect_opts"]
            request = LoginRequest(
                server_id=_text(server["id"]),
                user_nkey=public_text(Kind.USER, public_bytes(_text(asked["user_nkey"]), Kind.USER)),
                connection_id=int(client["id"]),
                host=_text(client.get("host", "")),
                name=_text(options.get("name", "")),
                credential=_text(options.get("auth_token") or options.get("pass") or ""),
                expires=int(claims["exp"]),
                server_xkey=xkey,
            )
        except NotAsked:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise NotAsked("not of the shape of a request") from error
        if claims.get("aud") != _AUDIENCE or claims.get("iss") != request.server_id:
            raise NotAsked("not from the server that it names, or not for us")
        if xkey is not None and server.get("xkey") != xkey:
            raise NotAsked("sealed with another key than the server's")
        if request.expires <= now:
            raise NotAsked("the server no longer waits")
        return request

    def admit(self, request: LoginRequest, name: str, may: Permissions, now: int, expires: int) -> bytes:
        """The answer that lets the connection in under this name until it expires."""
        user = {
            "aud": self._account,
            "exp": expires,
            "iat": now,
            "iss": self._issuer,
            "name": name,
            "sub": request.user_nkey,
            "nats": {
                "type": "user",
                "version": 2,
                "pub": {"allow": may.publish},
                "sub": {"allow": may.subscribe},
                "subs": may.subscriptions,
                "payload": may.payload,
                "data": -1,
                "allowed_connection_types": ["STANDARD", "WEBSOCKET"],
            },
        }
        return self._answer(request, {"jwt": self._sign(user)}, now)

    def refuse(self, request: LoginRequest, reason: str, now: int) -> bytes:
        """The answer that turns the connection away; the reason stands in the server's log alone."""
        return self._answer(request, {"error": reason}, now)

    def _answer(self, request: LoginRequest, said: Mapping[str, str], now: int) -> bytes:
        claims = {
            "aud": request.server_id,
            "iat": now,
            "iss": self._issuer,
            "sub": request.user_nkey,
            "nats": {"type": "authorization_response", "version": 2, **said},
        }
        text = self._sign(claims).encode("ascii")
        if self._curve is None or request.server_xkey is None:
            return text
        nonce = os.urandom(_NONCE)
        return _SEAL + nonce + self._box(request.server_xkey).encrypt(text, nonce).ciphertext

    def _sign(self, claims: dict[str, Any]) -> str:
        claims["jti"] = _base64(hashlib.sha256(orjson.dumps(claims)).digest())
        signed = f"{_base64(_HEADER)}.{_base64(orjson.dumps(claims))}"
        return f"{signed}.{_base64(self._signing.sign(signed.encode()).signature)}"

    def _opened(self, data: bytes, xkey: str | None) -> bytes:
        if self._curve is None:
            return data
        if xkey is None or data[:4] != _SEAL:
            raise NotAsked("not sealed, though a curve key is set")
        try:
            return self._box(xkey).decrypt(data[4 + _NONCE :], data[4 : 4 + _NONCE])
        except (CryptoError, ValueError) as error:
            raise NotAsked("sealed for somebody else") from error

    def _box(self, xkey: str) -> Box:
        assert self._curve is not None
        return Box(self._curve, PublicKey(public_bytes(xkey, Kind.CURVE)))

    @staticmethod
    def _verified(token: bytes) -> dict[str, Any]:
        """The claims of a token that is signed by the server key which it names."""
        try:
            header, claims, signature = token.split(b".")
            algorithm = orjson.loads(_raw(header))["alg"]
            document = orjson.loads(_raw(claims))
            key = VerifyKey(public_bytes(_text(document["iss"]), Kind.SERVER))
            key.verify(header + b"." + claims, _raw(signature))
        except (CryptoError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotAsked("not signed by a server") from error
        if algorithm not in _ALGORITHMS:
            raise NotAsked("signed by another algorithm")
        if not isinstance(document, dict):
            raise NotAsked("not of the shape of a request")
        return document


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _raw(text: bytes) -> bytes:
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error
