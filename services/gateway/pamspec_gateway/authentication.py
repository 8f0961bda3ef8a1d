"""Who calls: from a credential in the request to a signed principal.

Invariants: a caller that was identified is remembered no longer than its authenticator allows, and never longer than
the signed principal is valid, whatever the clock of the machine does meanwhile. What is forgotten at once, because some
credential opens less than before, is not remembered again by a look that began earlier.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from pamspec_common.errors import ServiceUnavailable, Unauthenticated
from pamspec_common.principal import Principal, TokenSigner
from pamspec_gateway.limits.holders import Holder
from pamspec_gateway.limits.limiter import Limiter
from pamspec_gateway.memory import Remembered

_ADMITTED = 20_000
_MAX_CREDENTIAL = 8192
_MAX_LIFETIME_S = 25.0

Clock = Callable[[], float]


class Identity(NamedTuple):
    """An authenticated caller, and for how many seconds that may be remembered."""

    principal: Principal
    lifetime_s: float
    ends_in_s: float = math.inf
    """When the credential itself ends; remembering aside."""
    key_id: str | None = None
    """Of an API key, by which it can be looked up again."""


class Authenticator(Protocol):
    """One kind of credential: API keys, tokens of identity providers."""

    def accepts(self, credential: str) -> bool:
        """Whether the text has the form of this kind."""

    async def identify(self, credential: str, address: str) -> Identity:
        """The caller; Unauthenticated when the credential is not valid, ServiceUnavailable when that can't be told."""


class Tokens(dict[str, str]):
    """The signed principal of one caller, by the service that it is for; signed when it is first wanted."""

    def __init__(self, signer: TokenSigner, principal: Principal) -> None:
        super().__init__()
        self._signer, self._principal = signer, principal

    def __missing__(self, service: str) -> str:
        token = self[service] = self._signer.sign(self._principal, service)
        return token


class Admission(NamedTuple):
    """What the door needs of an admitted caller."""

    until: float
    signed_at: float
    """By the clock of the machine, on which services judge the age of the token."""
    tokens: Tokens
    principal: Principal
    holder: Holder


class Guard:
    """Admits callers by the headers Authorization (Bearer) and X-API-Key, remembering them by the header's bytes."""

    def __init__(
        self,
        authenticators: Sequence[Authenticator],
        signer: TokenSigner,
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
        *,
        limiter: Limiter,
    ) -> None:
        self._authenticators, self._signer, self._clock = tuple(authenticators), signer, clock
        self._limiter, self._wall = limiter, wall
        self._admitted: Remembered[Admission] = Remembered(_ADMITTED)
        self._moved: asyncio.Future[None] | None = None
        self._forgotten = 0
        self.stopping = False

    def forget(self, *, moved: bool) -> None:
        """Identify every caller anew; with `moved` those who are inside too, since some credential has ended."""
        self._admitted.clear()
        self._forgotten += 1
        if moved and self._moved is not None:
            self._moved.set_result(None)
            self._moved = None

    def stop(self) -> None:
        """From now on nobody waits inside for what may come (`stopping`); those who do are told."""
        self.stopping = True
        self.forget(moved=True)

    @property
    def moved(self) -> asyncio.Future[None]:
        """Done when some credential has ended or the door stops; shared, so not to be cancelled."""
        if self._moved is None:
            self._moved = asyncio.get_running_loop().create_future()
        return self._moved

    async def still_admits(self, headers: Mapping[bytes, bytes], address: str) -> bool:
        """Whether a caller that was let in would be now; yes while nobody can tell."""
        return await still_holds(self.admit(headers, address))

    def remembered(self, header: bytes | None) -> Admission | None:
        """The admission of a caller that was identified a moment ago, by the bytes of its Authorization header."""
        held = self._admitted.get(header) if header is not None else None
        return held if held is not None and self.holds(held) else None

    async def admit(self, headers: Mapping[bytes, bytes], address: str) -> Admission:
        """The caller of a request; Unauthenticated without valid credentials."""
        header = headers.get(b"authorization")
        if header is None:
            key = headers.get(b"x-api-key")
            if key is None:
                raise Unauthenticated
            header = b"Bearer " + key
        held = self.remembered(header)
        if held is not None:
            return held
        before = self._forgotten
        admission = await self.admission(await self.identify(_credential(header), address))
        if before == self._forgotten:
            self._admitted[header] = admission
        return admission

    def holds(self, admission: Admission) -> bool:
        """Whether an admission may still be used."""
        return admission.until > self._clock() and 0 <= self._wall() - admission.signed_at <= _MAX_LIFETIME_S

    async def admission(self, identity: Identity) -> Admission:
        """What the doors need of an identified caller."""
        holder = await self._limiter.holder(identity.principal)
        return Admission(
            self._clock() + min(identity.lifetime_s, _MAX_LIFETIME_S),
            self._wall(),
            Tokens(self._signer, identity.principal),
            identity.principal,
            holder,
        )

    async def identify(self, credential: str, address: str) -> Identity:
        """The owner of a credential; Unauthenticated when it is none of a kind that we know."""
        if len(credential) > _MAX_CREDENTIAL:
            raise Unauthenticated
        for authenticator in self._authenticators:
            if authenticator.accepts(credential):
                return await authenticator.identify(credential, address)
        raise Unauthenticated


async def still_holds(admitting: Awaitable[Admission]) -> bool:
    """Whether a look lets its caller in; yes while nobody can tell."""
    try:
        await admitting
    except Unauthenticated:
        return False
    except ServiceUnavailable:
        return True
    return True


def _credential(header: bytes) -> str:
    scheme, _, credential = header.partition(b" ")
    if scheme.lower() != b"bearer":
        raise Unauthenticated
    return credential.strip().decode("latin-1")
