"""Logins of agents to a real bus: who gets in, what a connection may do, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from datetime import UTC, datetime, timedelta

import nats as nats_py
import orjson
import pytest
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from pamspec_common.ids import subject_token
from services.gateway.tests.behind import refusal_of
from services.gateway.tests.on_the_bus import PATIENCE_S, Agent, BusWorld, document_of, letters, until
from services.gateway.tests.test_identity_tokens import AUDIENCE, Provider, provider

__all__ = ["provider"]

REFUSED = (NatsError, ConnectionError, TimeoutError)
OTHER = subject_token("tenant:t", "agent:b")


async def test_a_key_opens_its_own_subjects_and_nothing_else(world: BusWorld) -> None:
    agent = await world.agent(await world.key())
    service = await world.service_client()
    delivered = await agent.client.subscribe(f"pamspec.deliver.{agent.token}.>")
    await agent.client.flush()
    await service.publish(f"pamspec.deliver.{agent.token}.s", b"frame")
    assert (await delivered.next_msg(PATIENCE_S)).data == b"frame"
    for subject in (
        ">",
        "*",
        "pamspec.>",
        "pamspec.deliver.>",
        "pamspec.deliver.*.s",
        f"pamspec.deliver.{OTHER}.>",
        f"pamspec.deliver.{OTHER}.s",
        "pamspec.op.>",
        f"pamspec.op.{agent.token}.>",
        "pamspec.events.>",
        "pamspec.ledger.>",
        "pamspec.wake.0",
        "_INBOX.>",
        "_INBOX.*.x",
        f"_INBOX_{OTHER}.>",
        "_INBOX_*.>",
        "_R_.>",
        "$SYS.>",
        "$SYS.REQ.USER.AUTH",
        "$JS.>",
        "$KV.>",
    ):
        await agent.client.subscribe(subject)
        await agent.refused(f'subscription to "{subject}"')
    for subject in (
        f"pamspec.op.{OTHER}.read",
        f"pamspec.op.{agent.token}.read.more",
        "pamspec.op.read",
        f"pamspec.deliver.{agent.token}.s",
        f"pamspec.deliver.{OTHER}.s",
        "pamspec.events.a.b.object_created",
        "pamspec.ledger.0.a.b.object_created",
        "pamspec.wake.0",
        "$JS.API.INFO",
        "$JS.API.STREAM.NAMES",
        "$JS.API.CONSUMER.MSG.NEXT.PAMSPEC_LEDGER_0.c",
        "$JS.API.DIRECT.GET.PAMSPEC_LEDGER_0",
        "$KV.PAMSPEC_CHECKPOINTS.a.b",
        "$SYS.REQ.USER.AUTH",
        "$SYS.REQ.USER.INFO",
        "$SYS.REQ.SERVER.PING.CONNZ",
        "$SYS.REQ.ACCOUNT.PING.CONNZ",
        f"_INBOX_{OTHER}.x",
    ):
        await agent.client.publish(subject, b"{}")
        await agent.refused(f'publish to "{subject}"')
    assert agent.client.is_connected
    await service.close()


async def test_who_a_connection_is_and_under_which_inbox(world: BusWorld) -> None:
    """A client that knows its key alone names an inbox of its own and asks."""
    own = letters()
    agent = await world.agent(await world.key("agent:asks"), inbox=f"_INBOX.{own}", name=f"something/{own}")
    told = await agent.client.request("pamspec.op.whoami", b"", timeout=PATIENCE_S)
    document = document_of(told)
    ends = datetime.fromisoformat(str(document.pop("expires_at")))
    assert timedelta() < ends - datetime.now(UTC) < timedelta(seconds=901)
    assert document == {
        "tenant_id": "tenant:t",
        "actor_id": "agent:asks",
        "actor_kind": "agent",
        "principal_token": subject_token("tenant:t", "agent:asks"),
    }
    assert (told.headers or {})["Pamspec-Status"] == "200"
    for name in (f"something/{OTHER}.>", "something/>", f"x/{own}{own}", f"_INBOX_{OTHER}", "/*"):
        other = await world.agent(await world.key("agent:asks"), inbox="_INBOX.x", name=name)
        for subject in (f"_INBOX.{OTHER}.x", "_INBOX.>", f"_INBOX_{OTHER}.x"):
            await other.client.subscribe(subject)
            await other.refused(f'subscription to "{subject}"')


@pytest.mark.parametrize(
    "credential",
    ["", "short", "pam_" + "x" * 40, "a" * 300, "eyJ.eyJ.x", "pam_\u00e9" * 8, " " * 20, "x" * 9000],
    ids=["none", "short", "unknown", "too long", "garbled token", "not ascii", "spaces", "huge"],
)
async def test_what_is_no_credential_is_refused(world: BusWorld, credential: str) -> None:
    with pytest.raises(REFUSED):
        await Agent("x").connect(world.address.url, credential)


async def test_revoked_and_expired_keys_are_refused(world: BusWorld) -> None:
    revoked, expired = await world.key("agent:gone"), await world.key("agent:gone")
    await world.revoke(revoked)
    await world.sql(
        "UPDATE core.api_key SET expires_at = clock_timestamp() - interval '1 s' WHERE key_id = $1",
        world.key_ids[expired],
    )
    for key in (revoked, expired):
        with pytest.raises(REFUSED):
            await Agent("x").connect(world.address.url, key)


async def test_a_signed_token_opens_and_ends_with_its_time(own_world: BusWorld, provider: Provider) -> None:
    issuer = {"issuer": provider.url, "audience": AUDIENCE, "tenant_claim": "tenant", "roles_claim": "roles"}
    world = own_world
    await world.gateway(token_issuers=[issuer], token_skew_s=0)
    now = int(datetime.now(UTC).timestamp())
    credential = provider.token(exp=now + 6, iat=now, roles=["reader"])
    agent = await world.agent(credential, "user:ada", "tenant:x")
    assert document_of(await agent.request("read")) == {"told": True}
    assert world.behind.calls[-1].principal.actor_id == "user:ada"
    assert world.behind.calls[-1].principal.roles == {"reader"}
    async with asyncio.timeout(PATIENCE_S):
        await agent.closed.wait()
    for again in (
        credential,
        provider.token(aud="https://elsewhere"),
        provider.token(key=os.urandom(32), algorithm="HS256"),
    ):
        with pytest.raises(REFUSED):
            await Agent("x").connect(world.address.url, again)


async def test_a_connection_ends_with_its_key_and_otherwise_in_time(own_world: BusWorld) -> None:
    world = own_world
    await world.gateway(agent_login_s=2.0)
    agent = await world.agent(await world.key())
    async with asyncio.timeout(PATIENCE_S):
        await agent.closed.wait()
    ending = await world.key("agent:ending")
    await world.sql(
        "UPDATE core.api_key SET expires_at = clock_timestamp() + interval '1.5 s' WHERE key_id = $1",
        world.key_ids[ending],
    )
    agent = await world.agent(ending, "agent:ending")
    async with asyncio.timeout(PATIENCE_S):
        await agent.closed.wait()


async def test_a_revoked_key_is_refused_and_its_connections_end(world: BusWorld) -> None:
    revoked, kept = await world.key("agent:r"), await world.key("agent:r")
    ends, stays = await world.agent(revoked, "agent:r"), await world.agent(kept, "agent:r")
    assert document_of(await ends.request("read")) == {"told": True}
    await world.revoke(revoked)
    async with asyncio.timeout(PATIENCE_S):
        await ends.lost.wait()
    assert document_of(await stays.request("read")) == {"told": True}
    assert stays.client.is_connected


async def test_without_kicks_a_revoked_key_is_refused_on_its_connection(own_world: BusWorld) -> None:
    """The rights are looked up with the request, so the server's part is no condition of the refusal."""
    world = own_world
    await world.gateway(system_nkey_seed=None)
    key = await world.key()
    agent = await world.agent(key)
    assert document_of(await agent.request("read")) == {"told": True}
    await world.sql("UPDATE core.api_key SET roles = '{auditor}', epoch = epoch + 1")

    async def has_its_new_role() -> bool:
        await agent.request("read")
        return world.behind.calls[-1].principal.roles == {"auditor"}

    async def is_refused() -> bool:
        return ((await agent.request("read")).headers or {})["Pamspec-Status"] == "401"

    await until(has_its_new_role)
    await world.revoke(key)
    await until(is_refused)
    seen = len(world.behind.calls)
    assert refusal_of((await agent.request("read")).data)["code"] == "access_denied"
    assert len(world.behind.calls) == seen
    assert agent.client.is_connected


async def test_two_keys_of_one_actor_keep_their_own_rights(world: BusWorld) -> None:
    """They share subjects; what counts is the key that opened the connection."""
    plain, strong = await world.key("agent:two"), await world.key("agent:two")
    await world.sql("UPDATE core.api_key SET rights = '{admin}' WHERE key_id = $1", world.key_ids[strong])
    first, second = await world.agent(plain, "agent:two"), await world.agent(strong, "agent:two")
    for agent, rights in ((first, {"assert_actor"}), (second, {"admin"}), (first, {"assert_actor"})):
        await agent.request("read")
        assert world.behind.calls[-1].principal.rights == rights


async def test_a_gateway_takes_over_what_another_let_in(own_world: BusWorld) -> None:
    world = own_world
    first = await world.gateway()
    key = await world.key()
    agent = await world.agent(key)
    await first.stop()
    await world.gateway(agent_adopt_s=0.2)
    assert document_of(await agent.request("read")) == {"told": True}
    await world.revoke(key)
    async with asyncio.timeout(PATIENCE_S):
        await agent.lost.wait()


async def test_a_callout_that_is_away_stops_new_logins_alone(own_world: BusWorld) -> None:
    world = own_world
    key = await world.key()
    first = await world.gateway()
    agent = await world.agent(key)
    await first.stop()
    with pytest.raises(REFUSED):
        await Agent("x").connect(world.address.url, key)
    with pytest.raises(NoRespondersError):
        await agent.request("read")
    service = await world.service_client()
    delivered = await agent.client.subscribe(f"pamspec.deliver.{agent.token}.s")
    await agent.client.flush()
    await service.publish(f"pamspec.deliver.{agent.token}.s", b"frame")
    assert (await delivered.next_msg(PATIENCE_S)).data == b"frame"
    await service.close()
    await world.gateway()
    assert document_of(await agent.request("read")) == {"told": True}
    await world.agent(key)


async def test_the_bus_comes_back_and_the_gateway_with_it(own_world: BusWorld) -> None:
    world = own_world
    key = await world.key()
    await world.gateway()
    world.server.process.kill()
    await world.server.start()

    async def enters() -> bool:
        try:
            agent = await world.agent(key)
            return document_of(await agent.request("read")) == {"told": True}
        except REFUSED:
            return False

    await until(enters)


async def test_many_agents_at_once_are_let_in_with_few_statements(world: BusWorld) -> None:
    keys = [await world.key(f"agent:storm{number}") for number in range(20)]

    async def enter(number: int) -> bool:
        actor = f"agent:storm{number % 20}"
        agent = await world.agent(keys[number % 20], actor)
        return document_of(await agent.request("read")) == {"told": True}

    assert all(await asyncio.gather(*(enter(number) for number in range(200))))


async def test_a_storm_with_bad_keys_wedges_nobody_and_a_key_revoked_in_it_is_kicked(own_world: BusWorld) -> None:
    """200 at once, a fifth with what opens nothing: each gets in or is told no, and the callout goes on as before."""
    world = own_world
    await world.gateway()
    await world.gateway()
    keys = [await world.key(f"agent:storm{number}") for number in range(10)]
    ended = await world.key("agent:ended")
    await world.revoke(ended)
    leaving = await world.key("agent:leaving")
    let_in: list[Agent] = []
    refusals: list[Exception] = []

    async def enter(key: str, actor: str) -> None:
        agent = await world.agent(key, actor)
        assert document_of(await agent.request("read")) == {"told": True}
        let_in.append(agent)

    async def fail(key: str) -> None:
        with pytest.raises(REFUSED) as refused:
            await Agent("x").connect(world.address.url, key)
        refusals.append(refused.value)

    victims = [await world.agent(leaving, "agent:leaving") for _ in range(10)]
    storm = [
        *(enter(keys[number % 10], f"agent:storm{number % 10}") for number in range(160)),
        *(fail(ended) for _ in range(20)),
        *(fail(f"pam_{number:040}") for number in range(20)),
    ]
    random.Random(5).shuffle(storm)
    results = asyncio.gather(*storm)
    await world.revoke(leaving)
    async with asyncio.timeout(PATIENCE_S * 4):
        await results
        for victim in victims:
            await victim.lost.wait()
    assert len(let_in) == 160
    assert len(refusals) == 40
    assert {str(refusal).lower() for refusal in refusals} == {"nats: 'authorization violation'"}
    assert all(agent.client.is_connected for agent in let_in)
    with pytest.raises(REFUSED):
        await Agent("x").connect(world.address.url, leaving)
    fresh = await world.agent(await world.key("agent:after"), "agent:after")
    assert document_of(await fresh.request("read")) == {"told": True}


async def test_the_server_tells_whose_request_it_is_whatever_the_client_writes(world: BusWorld) -> None:
    mine, other = await world.key("agent:liar"), await world.key("agent:b")
    victim = await world.agent(other, "agent:b")
    await victim.request("read")
    liar = await world.agent(mine, "agent:liar")
    for forged in ("{}", '{"user":"key:x k1.x.y"}', "no json", orjson.dumps({"user": "x"}).decode()):
        await liar.request("read", Nats_Request_Info=forged)
        assert world.behind.calls[-1].principal.actor_id == "agent:liar"


async def test_requests_that_no_server_attests_are_refused(world: BusWorld) -> None:
    """As a service could send them by mistake, or an import without `share` would let agents send them."""
    service = await world.service_client()
    seen = len(world.behind.calls)
    token = subject_token("tenant:t", "agent:a")
    for headers in (
        None,
        {"Nats-Request-Info": "{}"},
        {"Nats-Request-Info": '{"user":7}'},
        {"Nats-Request-Info": '{"user":"key:x k1.AAAA.00"}'},
        {"Nats-Request-Info": '{"user":"key:x k9.AAAA.00"}'},
        {"Nats-Request-Info": '{"user":"' + "x" * 5000 + '"}'},
    ):
        for subject in (f"pamspec.op.{token}.read", "pamspec.op.whoami"):
            answer = await service.request(subject, b"{}", timeout=PATIENCE_S, headers=headers)
            assert refusal_of(answer.data)["code"] == "access_denied"
    assert len(world.behind.calls) == seen
    await service.close()


async def test_no_credential_stands_in_a_log(world: BusWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key, wrong = await world.key("agent:quiet"), "pam_" + "wrong" * 8
    agent = await world.agent(key, "agent:quiet")
    await agent.request("read")
    await agent.client.publish("$SYS.REQ.USER.INFO", b"")
    await agent.refused("publish")
    with pytest.raises(REFUSED):
        await Agent("x").connect(world.address.url, wrong)
    secrets = [key, wrong, *world.address.callout_variables().values(), world.address.service_seed]
    logged = world.log() + "".join(str(record.__dict__) for record in caplog.records)
    assert not [secret for secret in secrets if secret in logged]
    connections = await nats_py.connect(world.address.url, nkeys_seed_str=world.address.system_seed)
    listed = await connections.request("$SYS.REQ.SERVER.PING.CONNZ", b'{"auth":true}', timeout=PATIENCE_S)
    assert world.key_ids[key].encode() in listed.data
    assert key.encode() not in listed.data
    await connections.close()
