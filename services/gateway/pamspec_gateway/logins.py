"""The login of a connection to the bus, from the callout that lets it in to every request that it sends.

The name of the connection carries it: the gateway puts it into the user token, the server repeats it with each request
(header Nats-Request-Info, whatever the client writes there), and any gateway can read it. So there is no register of
logins to keep, and a connection has exactly the rights of the credential that opened it.

Invariants: a login counts only under our own signature and until it ends; the rights of a key are looked up again, and
remembered as those of callers over HTTP are, so a revoked key is refused although its connection may still stand.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from pamspec_common.errors import Unauthenticated
from pamspec_common.ids import subject_token
from pamspec_common.principal import Principal
from pamspec_gateway.api_keys import seconds_left
from pamspec_gateway.authentication import Admission, Clock, Guard, Identity
from pamspec_gateway.lookups import Lookups
from pamspec_gateway.memory import Remembered
from pamspec_gateway.queries import KeyOwner

_PURPOSE = b"pamspec login to the bus\0"
_REMEMBERED = 20_000
_MAX_NAME = 4096


class Login(msgspec.Struct, array_like=True, frozen=True):
    """As whom a connection entered. The principal of a key is only told here; its rights are looked up."""

    expires: float
    principal: Principal
    key_id: str | None = None

    @property
    def token(self) -> str:
        """The principal's token in subjects."""
        return subject_token(self.principal.tenant_id, self.principal.actor_id)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Login)


class LoginNames:
    """Writes and reads `<key or actor> <kid>.<login>.<mac>`: the first word is for people who look at connections."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = dict(keys)
        self._kid = next(iter(self._keys))

    def write(self, login: Login) -> str:
        """The name of a login."""
        body = base64.urlsafe_b64encode(_encoder.encode(login)).decode("ascii")
        label = login.key_id or login.principal.actor_id
        return f"{label} {self._kid}.{body}.{_mac(self._keys[self._kid], self._kid, body)}"

    def read(self, name: str) -> Login:
        """The login of a name, ended or not; Unauthenticated when we did not write it."""
        kid, _, rest = name.rpartition(" ")[2].partition(".")
        body, _, mac = rest.partition(".")
        key = self._keys.get(kid)
        if len(name) > _MAX_NAME or key is None or not hmac.compare_digest(mac.encode(), _mac(key, kid, body).encode()):
            raise Unauthenticated("The bus names no login of ours with this request; log in through the callout.")
        try:
            return _decoder.decode(base64.urlsafe_b64decode(body))
        except (binascii.Error, msgspec.DecodeError):
            raise Unauthenticated("The bus names a login of another version; log in again.") from None


def _mac(key: bytes, kid: str, body: str) -> str:
    return hmac.digest(key, _PURPOSE + f"{kid}.{body}".encode(), "sha256").hex()


class _Held(NamedTuple):
    admission: Admission
    token: str
    expires: float


class Logins:
    """The callers of requests over the bus."""

    def __init__(
        self,
        names: LoginNames,
        keys: Lookups[str, KeyOwner],
        guard: Guard,
        *,
        lifetime_s: float,
        wall: Clock = time.time,
    ) -> None:
        self._names, self._keys, self._guard = names, keys, guard
        self._lifetime_s, self._wall = lifetime_s, wall
        self._held: Remembered[_Held] = Remembered(_REMEMBERED)
        self._forgotten = 0

    async def admit(self, name: str, token: str) -> Admission:
        """The caller of a request on a subject with this token; Unauthenticated when its login does not (any more)
        stand for that, ServiceUnavailable when it can't be told.
        """
        text = name.encode()
        held = self._held.get(text)
        if held is None or held.expires <= self._wall() or not self._guard.holds(held.admission):
            before = self._forgotten
            held = await self._look_up(name)
            if before == self._forgotten:
                self._held[text] = held
        if held.token != token:
            raise Unauthenticated("This subject belongs to another principal; use the token of your own.")
        return held.admission

    async def _look_up(self, name: str) -> _Held:
        login = self._names.read(name)
        left_s = login.expires - self._wall()
        if left_s <= 0:
            raise Unauthenticated("The login of this connection has ended; connect again.")
        identity = Identity(login.principal, left_s)
        if login.key_id is not None:
            owner = await self._keys.find(login.key_id)
            if owner is None:
                raise Unauthenticated("The key of this connection is no longer valid; connect with another.")
            identity = Identity(owner.principal, min(self._lifetime_s, left_s, seconds_left(owner)))
        principal = identity.principal
        token = subject_token(principal.tenant_id, principal.actor_id)
        return _Held(await self._guard.admission(identity), token, login.expires)

    def forget(self) -> None:
        """Look every caller up again: some credential may open less than before."""
        self._held.clear()
        self._forgotten += 1
