"""Requests of bus servers and the answers to them: what counts, and every way not to; keys of NATS as texts."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import nkeys
import pytest
from nacl.public import Box, PrivateKey, PublicKey
from nacl.signing import SigningKey, VerifyKey

from pamspec_common.errors import Unauthenticated
from pamspec_common.nkey import Kind, new_seed, public_bytes, public_text, seed_bytes
from pamspec_common.principal import Principal
from pamspec_gateway.bus_tokens import BusTokens, NotAsked, Permissions
from pamspec_gateway.logins import Login, LoginNames

NOW = 1_800_000_000
USER = public_text(Kind.USER, bytes(SigningKey.generate().verify_key))
MAY = Permissions(["pamspec.op.x.*"], ["pamspec.deliver.x.>"], 10, 1024)
PLANNER = Principal("tenant:a", "agent:planner", "agent", frozenset({"audit"}), 3, frozenset({"reader"}))


class Server:
    """A bus server, with the keys that it has made for itself."""

    def __init__(self) -> None:
        self.signing, self.curve = SigningKey.generate(), PrivateKey.generate()
        self.id = public_text(Kind.SERVER, bytes(self.signing.verify_key))
        self.xkey = public_text(Kind.CURVE, bytes(self.curve.public_key))

    def claims(self) -> dict[str, Any]:
        """What a server says of a connection that waits."""
        return {
            "aud": "nats-authorization-request",
            "iss": self.id,
            "iat": NOW,
            "exp": NOW + 5,
            "nats": {
                "server_id": {"id": self.id, "xkey": self.xkey},
                "user_nkey": USER,
                "client_info": {"host": "127.0.0.1", "id": 7},
                "connect_opts": {"auth_token": "pam_secret", "name": "a client"},
                "type": "authorization_request",
            },
        }

    def signed(self, claims: dict[str, Any], algorithm: str = "ed25519-nkey", by: SigningKey | None = None) -> bytes:
        """The claims under a signature."""
        head = encoded(json.dumps({"typ": "JWT", "alg": algorithm}).encode())
        body = head + b"." + encoded(json.dumps(claims).encode())
        return body + b"." + encoded((by or self.signing).sign(body).signature)

    def sealed(self, token: bytes, to: PublicKey) -> bytes:
        """The token in a box that only its receiver opens."""
        nonce = os.urandom(24)
        return b"xkv1" + nonce + Box(self.curve, to).encrypt(token, nonce).ciphertext

    def opened(self, data: bytes, sender: PublicKey) -> dict[str, Any]:
        """The claims of an answer."""
        assert data[:4] == b"xkv1"
        return decoded(Box(self.curve, sender).decrypt(data[28:], data[4:28]))


def encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def decoded(token: bytes) -> dict[str, Any]:
    body = token.split(b".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)))
    return claims


def made(xkey: str | None = None) -> tuple[BusTokens, str]:
    issuer = new_seed(Kind.ACCOUNT)
    return BusTokens(issuer, xkey, "AGENTS"), issuer


def test_a_request_is_read_and_answered_under_the_issuer() -> None:
    tokens, issuer = made()
    server = Server()
    request = tokens.read(server.signed(server.claims()), {}, NOW)
    assert (request.server_id, request.connection_id, request.credential) == (server.id, 7, "pam_secret")
    assert "pam_secret" not in f"{request!r} {request}"
    answer = tokens.admit(request, "a login", MAY, NOW, NOW + 60)
    claims = decoded(answer)
    assert (claims["aud"], claims["sub"], claims["nats"]["type"]) == (server.id, USER, "authorization_response")
    user = decoded(claims["nats"]["jwt"].encode())
    assert (user["aud"], user["sub"], user["exp"], user["name"]) == ("AGENTS", USER, NOW + 60, "a login")
    assert user["nats"]["pub"] == {"allow": ["pamspec.op.x.*"]}
    assert user["nats"]["sub"] == {"allow": ["pamspec.deliver.x.>"]}
    assert "resp" not in user["nats"]
    key = SigningKey(seed_bytes(issuer, Kind.ACCOUNT)).verify_key
    for token in (answer, claims["nats"]["jwt"].encode()):
        head, _, signature = token.rpartition(b".")
        key.verify(head, base64.urlsafe_b64decode(signature + b"=="))
        assert decoded(token)["iss"] == public_text(Kind.ACCOUNT, bytes(key))
    refusal = decoded(tokens.refuse(request, "no", NOW))
    assert refusal["nats"]["error"] == "no"
    assert "jwt" not in refusal["nats"]


def test_with_a_curve_key_nothing_travels_unsealed() -> None:
    seed = new_seed(Kind.CURVE)
    ours = PrivateKey(seed_bytes(seed, Kind.CURVE)).public_key
    tokens, _ = made(seed)
    server = Server()
    token = server.signed(server.claims())
    request = tokens.read(server.sealed(token, ours), {"Nats-Server-Xkey": server.xkey}, NOW)
    assert server.opened(tokens.refuse(request, "no", NOW), ours)["nats"]["error"] == "no"
    other = Server()
    for data, headers in (
        (token, {}),
        (token, {"Nats-Server-Xkey": server.xkey}),
        (server.sealed(token, PrivateKey.generate().public_key), {"Nats-Server-Xkey": server.xkey}),
        (server.sealed(token, ours), {"Nats-Server-Xkey": other.xkey}),
        (other.sealed(token, ours), {"Nats-Server-Xkey": other.xkey}),
        (server.sealed(token, ours), {"Nats-Server-Xkey": "X"}),
        (server.sealed(token, ours), {"Nats-Server-Xkey": USER}),
        (server.sealed(token, ours)[:40], {"Nats-Server-Xkey": server.xkey}),
        (b"xkv1", {"Nats-Server-Xkey": server.xkey}),
    ):
        with pytest.raises(NotAsked):
            tokens.read(data, headers, NOW)


def test_forged_foreign_and_late_requests_do_not_count() -> None:
    tokens, _ = made()
    server, other = Server(), Server()

    def changed(**more: object) -> bytes:
        return server.signed(server.claims() | more)

    def nested(**more: object) -> bytes:
        claims = server.claims()
        claims["nats"] |= more
        return server.signed(claims)

    whole = server.signed(server.claims())
    head, body, signature = whole.split(b".")
    none = encoded(b'{"typ":"JWT","alg":"none"}')
    for data in (
        b"", b"x", b"a.b", b"a.b.c.d", b"....", whole[:-3], whole + b"x",
        b".".join((head, encoded(json.dumps(server.claims() | {"exp": NOW + 999}).encode()), signature)),
        b".".join((none, body, b"")), b".".join((none, body, signature)),
        server.signed(server.claims(), "HS256"),
        server.signed(server.claims(), by=other.signing),
        other.signed(server.claims() | {"iss": other.id}),
        changed(iss=USER), changed(iss=None), changed(iss=7), changed(iss="N" * 56),
        changed(aud="elsewhere"), changed(aud=None),
        changed(exp=NOW), changed(exp=NOW - 1), changed(exp=None), changed(exp="soon"),
        changed(nats=None), changed(nats=[]), changed(nats={}),
        nested(user_nkey=server.id), nested(user_nkey="U"), nested(user_nkey=None),
        nested(server_id=None), nested(server_id={"id": 7}), nested(server_id={"id": other.id}),
        nested(client_info={}), nested(client_info=7), nested(connect_opts=None),
        nested(connect_opts={"auth_token": 7}),
        b"x" * 70_000,
    ):  # fmt: skip
        with pytest.raises(NotAsked):
            tokens.read(data, {}, NOW)
    assert tokens.read(whole, {}, NOW + 4.9).credential == "pam_secret"


def test_a_login_comes_back_and_no_other_text_is_one() -> None:
    names = LoginNames({"k1": b"key one", "k0": b"key nought"})
    login = Login(NOW + 60.0, PLANNER, "key:7")
    name = names.write(login)
    assert names.read(name) == login
    assert name.startswith("key:7 k1.")
    assert LoginNames({"k2": b"newer", "k1": b"key one"}).read(name) == login
    assert names.write(Login(NOW + 60.0, PLANNER)).startswith("agent:planner k1.")
    label, _, proof = name.partition(" ")
    kid, body, mac = proof.split(".")
    other = names.write(Login(NOW + 60.0, PLANNER, "key:8")).partition(" ")[2].split(".")
    for forged in (
        "", " ", label, name[:-1], name + "0", f"{label} {kid}.{body}.", f"{label} k0.{body}.{mac}",
        f"{label} {kid}.{other[1]}.{mac}", f"{label} {kid}..{mac}", f"{label} {proof}.x", "\u00e9 k1.x.y",
    ):  # fmt: skip
        with pytest.raises(Unauthenticated):
            names.read(forged)
    with pytest.raises(Unauthenticated):
        LoginNames({"k1": b"another key"}).read(name)


@pytest.mark.parametrize("kind", [Kind.ACCOUNT, Kind.USER])
def test_keys_are_those_of_the_nats_library(kind: Kind) -> None:
    seed = new_seed(kind)
    pair = nkeys.from_seed(bytearray(seed, "ascii"))
    public = bytes(pair.public_key).decode()
    raw = seed_bytes(seed, kind)
    assert public == public_text(kind, bytes(SigningKey(raw).verify_key))
    assert public_bytes(public, kind) == bytes(SigningKey(raw).verify_key)
    VerifyKey(public_bytes(public, kind)).verify(b"text", pair.sign(b"text"))


def test_keys_of_another_kind_or_with_a_wrong_letter_are_refused() -> None:
    for kind in Kind:
        seed, public = new_seed(kind), public_text(kind, os.urandom(32))
        assert public_text(kind, public_bytes(public, kind)) == public
        for other in set(Kind) - {kind}:
            with pytest.raises(ValueError, match="no "):
                seed_bytes(seed, other)
            with pytest.raises(ValueError, match="no "):
                public_bytes(public, other)
        for wrong in ("", "S", seed[:-1], public, seed[::-1], seed.lower(), seed + "A", "!" * 58):
            with pytest.raises(ValueError, match="no ") as refused:
                seed_bytes(wrong, kind)
            assert seed not in str(refused.value)
