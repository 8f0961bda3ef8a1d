"""Attestations: what an authority vouches for about an actor, verified where a policy asks for it (PAMSPEC P51).

Pure: no I/O, no clock. Invariant: an attestation speaks for nobody but the actor that it was signed for, and, where its
authority binds it, for nothing but the scope and the object that it names.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Literal

import jwt
import msgspec
import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pamspec_common.documents import Actor, Attestation
from pamspec_common.instants import parse
from pamspec_common.strict_json import canonical

DOMAIN = b"pamspec-attestation-1\n"
"""Begins what an Ed25519 signature covers; behind it stands the statement in canonical JSON."""
MAX_AUTHORITIES = 100
MAX_KEYS = 20
MAX_SIGNATURE = 16 * 1024
_BY_CURVE = {("OKP", "Ed25519"): "EdDSA", ("EC", "P-256"): "ES256"}
_SIGNED_TIMES = (("nbf", "not_before"), ("exp", "not_after"), ("iat", "issued_at"))
_SIGNED_TEXTS = (
    "agent_manifest_ref",
    "manifest_digest",
    "manifest_digest_algorithm",
    "did_ref",
    "capabilities_declared",
)

Bound = Literal["scope_id", "object_id"]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class PublicKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A public key as a JSON Web Key: Ed25519, or P-256 for JWS."""

    kty: Literal["OKP", "EC"]
    crv: Literal["Ed25519", "P-256"]
    x: Text
    y: Text | None = None
    kid: Text | None = None


class Authority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may vouch for actors, how, and for what: `binds` names what each attestation has to name."""

    attestation_authority: Text
    method: Literal["jws", "ed25519"]
    keys: Annotated[tuple[PublicKey, ...], msgspec.Meta(min_length=1, max_length=MAX_KEYS)]
    binds: tuple[Bound, ...] = ()


class AttestationRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a scope asks of attestations; `required_of` are the kinds of actors that must send one."""

    authorities: Annotated[tuple[Authority, ...], msgspec.Meta(min_length=1, max_length=MAX_AUTHORITIES)]
    required_of: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MAX_AUTHORITIES)] = ()


class Refused(Exception):
    """An attestation that counts for nothing; `reason` is a word, the text says what to do."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason, self.text = reason, text


def unusable_key(rule: AttestationRule) -> str | None:
    """Where in the rule a key stands that cannot be used with its method, if one does."""
    for place, authority in enumerate(rule.authorities):
        for index, key in enumerate(authority.keys):
            usable = (key.kty, key.crv) in _BY_CURVE and (authority.method == "jws" or key.kty == "OKP")
            try:
                usable = usable and _key(key) is not None
            except (jwt.PyJWTError, ValueError):
                usable = False
            if not usable:
                return f"authorities[{place}].keys[{index}]"
    return None


def verify(rule: AttestationRule, actor: Actor, about: Mapping[str, str | None]) -> None:
    """Raise Refused unless an authority of the rule vouches for this actor and for what the operation is `about`.

    The window of time is not looked at: see `check_window`.
    """
    given = actor.attestation
    if given is None:
        if actor.actor_kind in rule.required_of:
            raise Refused(
                "attestation_missing",
                f"An actor of the kind {actor.actor_kind} writes here only with an attestation; send actor.attestation"
                " of an authority in the scope's policy.",
            )
        return
    mine = [one for one in rule.authorities if one.attestation_authority == given.attestation_authority]
    if not mine:
        raise Refused(
            "attestation_authority_unknown",
            "The scope's policy does not name this attestation_authority; use one that it names, or have it added.",
        )
    mine = [one for one in mine if one.method == given.attestation_method]
    if not mine:
        raise Refused(
            "attestation_method_unknown",
            "The scope's policy takes this authority's attestations by another method; use that one.",
        )
    if not given.signature or len(given.signature) > MAX_SIGNATURE:
        raise Refused("attestation_unsigned", "The attestation has no usable signature; send the one of its authority.")
    refusals = [_refusal(authority, actor, given, about) for authority in mine]
    first = refusals[0]
    if first is not None and all(refusal is not None for refusal in refusals):
        raise first


def check_window(given: Attestation, now: datetime) -> None:
    """Raise Refused outside of the attestation's window, whose both ends belong to it."""
    if given.not_before is not None and now < parse(given.not_before):
        raise Refused("attestation_early", "The attestation does not hold yet; wait for its not_before, or correct it.")
    if given.not_after is not None and now > parse(given.not_after):
        raise Refused("attestation_expired", "The attestation has expired; get a new one from its authority.")


def statement(actor: Actor, about: Mapping[str, str | None], binds: tuple[Bound, ...] = ()) -> bytes:
    """What an Ed25519 signature covers: the actor, the attestation but for its signature, and what binds it."""
    given = {name: value for name, value in msgspec.to_builtins(actor.attestation).items() if name != "signature"}
    document: dict[str, Any] = {"actor_id": actor.actor_id, "actor_kind": actor.actor_kind, "attestation": given}
    document |= {name: about.get(name) for name in binds}
    return DOMAIN + canonical(document)


def _refusal(authority: Authority, actor: Actor, given: Attestation, about: Mapping[str, str | None]) -> Refused | None:
    """Why an authority of the right name and method does not vouch for it; None where it does."""
    try:
        (_check_jws if authority.method == "jws" else _check_ed25519)(authority, actor, given, about)
    except Refused as refused:
        return refused
    return None


def _check_ed25519(authority: Authority, actor: Actor, given: Attestation, about: Mapping[str, str | None]) -> None:
    try:
        signature = base64.b64decode((given.signature or "") + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _bad_signature() from None
    signed = statement(actor, about, authority.binds)
    for key in authority.keys:
        public = _key(key).key
        assert isinstance(public, Ed25519PublicKey)
        try:
            public.verify(signature, signed)
        except InvalidSignature:
            continue
        return
    raise _bad_signature()


def _check_jws(authority: Authority, actor: Actor, given: Attestation, about: Mapping[str, str | None]) -> None:
    claims = _claims(authority, given.signature or "")
    if claims.get("iss") != given.attestation_authority:
        raise Refused("attestation_foreign", "Another authority signed the attestation than the one that it names.")
    if claims.get("sub") != actor.actor_id:
        raise Refused(
            "attestation_of_another", "The attestation vouches for another actor; send the one of this actor."
        )
    if claims.get("actor_kind", actor.actor_kind) != actor.actor_kind:
        raise Refused("attestation_of_another", "The attestation vouches for another kind of actor; send its own.")
    for name in ("scope_id", "object_id"):
        if (name in claims or name in authority.binds) and claims.get(name) != about.get(name):
            raise Refused(
                "attestation_bound_elsewhere",
                f"The attestation is bound to another {name}, or to none; get one for what is written here.",
            )
    for claim, member in _SIGNED_TIMES:
        told = getattr(given, member)
        if told is not None or claim in claims:
            _check_time(claims.get(claim), told, member)
    for member in _SIGNED_TEXTS:
        if getattr(given, member) is not None and claims.get(member) != getattr(given, member):
            raise Refused(
                "attestation_altered",
                f"{member} is not what the authority signed; send the attestation unchanged.",
            )


def _check_time(signed: Any, told: str | None, member: str) -> None:
    """A time that is signed is told, and one that is told is signed: to the second."""
    is_number = isinstance(signed, int | float) and not isinstance(signed, bool)
    if not is_number or told is None or int(parse(told).timestamp()) != int(signed):
        raise Refused(
            "attestation_altered", f"{member} is not what the authority signed; send the attestation unchanged."
        )


def _claims(authority: Authority, token: str) -> dict[str, Any]:
    """The claims of a compact JWS that one of the authority's keys signed; the algorithm is the key's own."""
    try:
        kid = jwt.get_unverified_header(token).get("kid")
    except jwt.PyJWTError:
        raise _bad_signature() from None
    for key in authority.keys:
        if kid is not None and key.kid is not None and kid != key.kid:
            continue
        try:
            payload = jwt.PyJWS().decode(token, _key(key), algorithms=[_BY_CURVE[key.kty, key.crv]])
            claims = orjson.loads(payload)
        except (jwt.PyJWTError, orjson.JSONDecodeError):
            continue
        if isinstance(claims, dict):
            return claims
    raise _bad_signature()


@lru_cache(maxsize=1024)
def _key(key: PublicKey) -> jwt.PyJWK:
    return jwt.PyJWK.from_dict(msgspec.to_builtins(key), algorithm=_BY_CURVE[key.kty, key.crv])


def _bad_signature() -> Refused:
    return Refused(
        "attestation_signature_wrong",
        "The attestation's signature does not verify under a key of its authority; send it as the authority made it.",
    )
