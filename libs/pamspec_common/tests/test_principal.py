"""Signed principals: what is trusted, for how long, and what a jumping clock does to them."""

import pytest
from pydantic import SecretBytes, SecretStr

from pamspec_common import contracts
from pamspec_common.errors import ServiceUnavailable, Unauthenticated
from pamspec_common.principal import EVERY_SERVICE, Principal, TokenSigner, TokenVerifier
from pamspec_common.settings import CommonSettings

KEY = b"k" * 32
AGENT = Principal("tenant:a", "agent:a", "agent", frozenset({"audit"}))
HOUR_S = 3600


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def signer(clock: Clock) -> TokenSigner:
    return TokenSigner("k1", KEY, clock=clock)


@pytest.fixture
def verifier(clock: Clock) -> TokenVerifier:
    return TokenVerifier({"k1": KEY}, "query", clock=clock)


def test_a_token_is_reused_for_half_of_its_life_and_trusted_for_all_of_it(
    clock: Clock, signer: TokenSigner, verifier: TokenVerifier
) -> None:
    token = signer.sign(AGENT)
    clock.now += 29
    assert signer.sign(AGENT) == token
    clock.now += 2
    assert signer.sign(AGENT) != token
    for _ in range(2):
        assert verifier.verify(token) == AGENT
    clock.now += 30
    for _ in range(2):
        with pytest.raises(ServiceUnavailable):
            verifier.verify(token)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_after_a_jump_of_the_clock_old_tokens_are_out_and_new_ones_are_minted(
    clock: Clock, signer: TokenSigner, verifier: TokenVerifier, jump_s: int
) -> None:
    known, unknown = signer.sign(AGENT), TokenSigner("k1", KEY, clock=clock).sign(AGENT)
    assert verifier.verify(known) == AGENT
    clock.now += jump_s
    for token in (known, unknown):
        with pytest.raises(ServiceUnavailable, match="try again"):
            verifier.verify(token)
    assert verifier.verify(signer.sign(AGENT)) == AGENT


def test_what_is_missing_foreign_or_forged_is_not_trusted(signer: TokenSigner, verifier: TokenVerifier) -> None:
    token = signer.sign(AGENT)
    kid, body, mac = token.split(".")
    foreign = TokenSigner("k1", KEY, audience="elsewhere").sign(AGENT)
    for bad in (None, "", "x", f"k2.{body}.{mac}", f"{kid}.{body}x.{mac}", f"{kid}.{body}.{mac[:-1]}", foreign):
        with pytest.raises(Unauthenticated):
            verifier.verify(bad)


def test_a_token_for_one_service_opens_no_other_one() -> None:
    signer = TokenSigner.of(
        CommonSettings(database_url=SecretStr("postgresql://x"), token_keys={"k1": SecretBytes(KEY)})
    )
    services = EVERY_SERVICE.split()
    assert set(services) >= {one.service for one in contracts.operations().values()}
    for audience in services:
        token = signer.sign(AGENT, audience)
        for service in services:
            verifier = TokenVerifier({"k1": KEY}, service)
            if service == audience:
                assert verifier.verify(token) == AGENT
            else:
                with pytest.raises(Unauthenticated, match="another service"):
                    verifier.verify(token)
    assert TokenVerifier({"k1": KEY}, "write").verify(signer.sign(AGENT)) == AGENT, "services ask write, mostly"
    with pytest.raises(Unauthenticated):
        TokenVerifier({"k1": KEY}, "w").verify(signer.sign(AGENT))
