"""Attestations: kept to the letter; verified where the policy names who may vouch, and refused where they fail."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pamspec_common.attestation import Bound, statement
from pamspec_common.documents import Actor
from services.write.tests.writer import BACKEND, PROVENANCE, Document, Writer, claim, edge

AUTHORITY = "urn:auth:example-ci"
ACTOR = {"actor_id": "agent:deployer", "actor_kind": "agent"}
KEY, OTHER_KEY = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
CURVE_KEY = ec.generate_private_key(ec.SECP256R1())
NOW = datetime.now(UTC).replace(microsecond=0)
WINDOW = {"not_before": NOW - timedelta(hours=1), "not_after": NOW + timedelta(days=1)}


def jwk(key: Ed25519PrivateKey | ec.EllipticCurvePrivateKey, **more: Any) -> Document:
    """The public key as a policy names it."""
    algorithm = jwt.get_algorithm_by_name("EdDSA" if isinstance(key, Ed25519PrivateKey) else "ES256")
    document = json.loads(algorithm.to_jwk(key.public_key()))
    return {name: document[name] for name in ("kty", "crv", "x", "y") if name in document} | more


def text(at: datetime) -> str:
    """A time as an authority may write it."""
    return at.isoformat().replace("+00:00", "Z")


def jws(
    key: Any = KEY, *, algorithm: str = "EdDSA", claims: Mapping[str, Any] | None = None, **members: Any
) -> Document:
    """An attestation by JWS; `claims` change what is signed, `members` what is told."""
    told = {
        "agent_manifest_ref": "https://example.com/m.json",
        **{name: text(at) for name, at in WINDOW.items()},
        "capabilities_declared": ["read", "update"],
    }
    signed = {
        "iss": AUTHORITY,
        "sub": ACTOR["actor_id"],
        "nbf": int(WINDOW["not_before"].timestamp()),
        "exp": int(WINDOW["not_after"].timestamp()),
        "agent_manifest_ref": told["agent_manifest_ref"],
        "capabilities_declared": told["capabilities_declared"],
        **(claims or {}),
    }
    token = jwt.PyJWS().encode(json.dumps(signed).encode(), key, algorithm=algorithm)
    return {"attestation_authority": AUTHORITY, "attestation_method": "jws", "signature": token, **told, **members}


def ed25519(key: Ed25519PrivateKey = KEY, *, of: Document | None = None, **about: Any) -> Document:
    """An attestation by a signature over its statement, bound to what it is `about`."""
    told = {
        "attestation_authority": AUTHORITY,
        "attestation_method": "ed25519",
        "signature_algorithm": "Ed25519",
        **{name: text(at) for name, at in WINDOW.items()},
    }
    actor = msgspec.convert({**(of or ACTOR), "attestation": told}, Actor)
    signature = key.sign(statement(actor, about, msgspec.convert(list(about), tuple[Bound, ...])))
    return {**told, "signature": base64.urlsafe_b64encode(signature).decode().rstrip("=")}


async def policed(writer: Writer, *authorities: Document, required_of: list[str] | None = None) -> str:
    """A scope whose policy names these authorities."""
    scope = await writer.new_scope()
    rule: Document = {"authorities": list(authorities)}
    if required_of is not None:
        rule["required_of"] = required_of
    document = {"scope_id": scope, "policy": {"attestation": rule}, "expected_policy_version": 0, "policy_basis": "x"}
    await writer.ok("update_scope", document)
    return scope


def authority(method: str = "jws", *keys: Document, **more: Any) -> Document:
    """An entry of the policy."""
    return {"attestation_authority": AUTHORITY, "method": method, "keys": list(keys) or [jwk(KEY)], **more}


def by(attestation: Document | None, **actor: Any) -> Document:
    """The actor with that attestation."""
    return {**ACTOR, **actor, **({} if attestation is None else {"attestation": attestation})}


async def outcome(writer: Writer, scope: str, attestation: Document | None, **more: Any) -> str:
    """`kept`, or the reason of the refusal."""
    document = claim(scope, "x", actor=by(attestation)) | more
    answer = await writer.call("create", document, by=BACKEND)
    if answer.status == 201:
        return "kept"
    error = json.loads(answer.body)["error"]
    assert (error["code"], error["policy_rule_id"]) == ("policy_denied", "scope-policy/1/attestation")
    assert error["details"]["field"] == "actor.attestation"
    assert attestation is None or not attestation["signature"] or attestation["signature"] not in error["message"]
    return str(error["details"]["reason"]).removeprefix("attestation_")


async def test_it_is_kept_to_the_letter(shared: Writer) -> None:
    odd = {
        "attestation_authority": "urn:auth:elsewhere",
        "attestation_method": "sigstore",
        "signature": "MEUCIQD...",
        "issued_at": "2026-07-16T02:00:00.5+02:00",
        "not_before": "2026-07-16T00:00:00Z",
        "not_after": "2026-07-23T00:00:00.000Z",
        "capabilities_declared": ["b", "a"],
    }
    made = await shared.ok("create", claim(shared.scope, actor=by(odd)), by=BACKEND)
    assert made["envelope"]["actor"]["attestation"] == odd
    assert made["envelope"]["provenance"]["actor"]["attestation"] == odd
    for wrong in ("2026-07-16T00:00:00", "yesterday", "2026-13-01T00:00:00Z", ""):
        document = claim(shared.scope, actor=by({**odd, "issued_at": wrong}))
        assert (await shared.refused("create", document, by=BACKEND))["code"] == "invalid_request"
    inverted = claim(shared.scope, actor=by({**odd, "not_before": "2026-07-23T00:00:01Z"}))
    assert (await shared.refused("create", inverted, by=BACKEND))["code"] == "policy_denied"


async def test_what_an_authority_signed_is_taken_and_nothing_else(shared: Writer) -> None:
    scope = await policed(shared, authority("jws", jwk(KEY), jwk(CURVE_KEY, kid="curve")))
    early, late = NOW + timedelta(hours=1), NOW - timedelta(hours=1)
    begins: Document = {"claims": {"nbf": int(early.timestamp())}, "not_before": text(early)}
    ended: Document = {"claims": {"exp": int(late.timestamp())}, "not_after": text(late)}
    cases: dict[str, tuple[Document | None, str]] = {
        "signed": (jws(), "kept"),
        "on another curve": (jws(CURVE_KEY, algorithm="ES256"), "kept"),
        "not demanded": (None, "kept"),
        "by another key": (jws(OTHER_KEY), "signature_wrong"),
        "cut": ({**jws(), "signature": jws()["signature"][:-4]}, "signature_wrong"),
        "no token": ({**jws(), "signature": "MEUCIQD"}, "signature_wrong"),
        "with a secret": (jws(b"k" * 32, algorithm="HS256"), "signature_wrong"),
        "without a signature": ({**jws(), "signature": ""}, "unsigned"),
        "too long": ({**jws(), "signature": "a" * 20_000}, "unsigned"),
        "unknown authority": (jws(attestation_authority="urn:auth:mine"), "authority_unknown"),
        "of another authority": (jws(claims={"iss": "urn:auth:mine"}), "foreign"),
        "by another method": (jws(attestation_method="ed25519"), "method_unknown"),
        "of another actor": (jws(claims={"sub": "agent:other"}), "of_another"),
        "of another kind": (jws(claims={"actor_kind": "human"}), "of_another"),
        "not yet": (jws(**begins), "early"),
        "expired": (jws(**ended), "expired"),
        "a longer window": (jws(not_after=text(NOW + timedelta(days=9))), "altered"),
        "a window that is not told": (jws(not_after=text(NOW), claims={"exp": None}), "altered"),
        "more capabilities": (jws(capabilities_declared=["read", "update", "delete"]), "altered"),
        "another manifest": (jws(agent_manifest_ref="https://example.com/other.json"), "altered"),
        "bound to another scope": (jws(claims={"scope_id": "scope:other"}), "bound_elsewhere"),
        "bound to this scope": (jws(claims={"scope_id": scope}), "kept"),
    }
    found = {name: await outcome(shared, scope, attestation) for name, (attestation, _) in cases.items()}
    assert found == {name: expected for name, (_, expected) in cases.items()}


async def test_alg_none_and_a_key_of_another_kind_do_not_pass(shared: Writer) -> None:
    scope = await policed(shared, authority())
    header, body, _ = jws()["signature"].split(".")
    for alg in ({"alg": "none"}, {"alg": "EdDSA", "jwk": jwk(OTHER_KEY)}, {"alg": "ES256"}):
        forged = base64.urlsafe_b64encode(json.dumps(alg).encode()).decode().rstrip("=")
        for signature in ("", header):
            attestation = {**jws(), "signature": f"{forged}.{body}.{signature}"}
            assert await outcome(shared, scope, attestation) == "signature_wrong"


async def test_a_signature_over_the_statement(shared: Writer) -> None:
    scope = await policed(shared, authority("ed25519", jwk(OTHER_KEY), jwk(KEY)))
    assert await outcome(shared, scope, ed25519()) == "kept"
    later = text(NOW + timedelta(days=30))
    for wrong in (
        {**ed25519(), "not_after": later},
        {**ed25519(), "capabilities_declared": ["delete"]},
        {**ed25519(), "signature": "!!"},
        ed25519(of={**ACTOR, "actor_id": "agent:other"}),
        ed25519(Ed25519PrivateKey.generate()),
    ):
        assert await outcome(shared, scope, wrong) == "signature_wrong"


@pytest.mark.parametrize("method", ["jws", "ed25519"])
async def test_what_is_bound_is_not_replayed_elsewhere(shared: Writer, method: str) -> None:
    binding = authority(method, binds=["scope_id", "object_id"])
    scope, other = await policed(shared, binding), await policed(shared, binding)
    about: Document = {"scope_id": scope, "object_id": "obj:bound"}
    attestation = jws(claims=about) if method == "jws" else ed25519(**about)
    elsewhere = "bound_elsewhere" if method == "jws" else "signature_wrong"
    assert await outcome(shared, scope, attestation, object_id="obj:bound") == "kept"
    assert await outcome(shared, scope, attestation, object_id="obj:another") == elsewhere
    assert await outcome(shared, other, attestation, object_id="obj:bound") == elsewhere
    assert await outcome(shared, scope, attestation) == elsewhere
    unbound = jws() if method == "jws" else ed25519()
    assert await outcome(shared, scope, unbound, object_id="obj:third") == elsewhere


async def test_kinds_that_must_be_attested_in_every_write_of_memory(shared: Writer) -> None:
    scope = await policed(shared, authority(), required_of=["agent"])
    assert await outcome(shared, scope, None) == "missing"
    made = await shared.ok("create", claim(scope, "x", actor=by(jws())), by=BACKEND)
    second = await shared.ok("create", claim(scope, "y", actor=by(jws())), by=BACKEND)
    changes = {
        "update": shared.change(made, canonical_content="z", provenance=PROVENANCE),
        "transition": shared.change(made, dimension="lifecycle", target_state="archived", policy_basis="x"),
        "redact": shared.change(made, redaction_target={"whole": True}, policy_basis="x"),
        "delete": shared.change(made, policy_basis="x"),
        "relate": edge(made, second),
    }
    for operation, document in changes.items():
        error = await shared.refused(operation, {**document, "actor": by(None)}, by=BACKEND)
        assert error["details"].get("reason") == "attestation_missing", operation
    await shared.ok("update", {**changes["update"], "actor": by(jws())}, by=BACKEND)
    person = by(None, actor_id="human:developer", actor_kind="human")
    await shared.ok("create", claim(scope, "w", actor=person), by=BACKEND)
    await shared.ok("place_hold", {"scope_id": scope, "policy_basis": "x"})
    lifted = {"scope_id": scope, "policy": {}, "expected_policy_version": 1, "policy_basis": "x"}
    await shared.ok("update_scope", {**lifted, "actor": by(None)}, by=BACKEND)
    assert await outcome(shared, scope, jws(OTHER_KEY)) == "kept", "without a rule it is kept and not judged"


async def test_a_repetition_has_its_first_outcome_whatever_has_expired(shared: Writer) -> None:
    scope = await policed(shared, authority())
    document = claim(scope, "once", actor=by(jws()))
    first = await shared.call("create", document, key="k", by=BACKEND)
    assert first.status == 201
    rule = {"authorities": [authority("jws", jwk(OTHER_KEY))]}
    changed = {"scope_id": scope, "policy": {"attestation": rule}, "expected_policy_version": 1, "policy_basis": "x"}
    await shared.ok("update_scope", changed)
    assert (await shared.call("create", document, key="k", by=BACKEND)).body == first.body
    assert (await shared.refused("create", {**document, "canonical_content": "2"}, by=BACKEND))[
        "code"
    ] == "policy_denied"


@pytest.mark.parametrize(
    "wrong",
    [
        {"authorities": []},
        {"authorities": [authority("jws", {"kty": "OKP", "crv": "P-256", "x": "AAAA"})]},
        {"authorities": [authority("jws", {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"})]},
        {"authorities": [authority("ed25519", jwk(CURVE_KEY))]},
        {"authorities": [authority("sigstore")]},
        {"authorities": [authority(binds=["tenant_id"])]},
        {"authorities": [{**authority(), "keys": [{**jwk(KEY), "d": "secret"}]}]},
    ],
)
async def test_a_rule_that_could_not_verify_is_refused(shared: Writer, wrong: Document) -> None:
    document = {
        "scope_id": shared.scope,
        "policy": {"attestation": wrong},
        "expected_policy_version": 0,
        "policy_basis": "x",
    }
    error = await shared.refused("update_scope", document)
    assert error["code"] == "invalid_request"
    assert error["details"]["field"].startswith("policy.attestation.authorities")
