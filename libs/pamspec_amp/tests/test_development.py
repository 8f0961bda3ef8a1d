"""Development mode: requests without a key, where an operator has named one for them and nowhere else (A13, A21)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from conftest import TemplateDatabase
from libs.pamspec_amp.tests.conftest import POLICY, Tenant, cell
from pamspec_common.keys import new_key
from services.gateway.tests import whole as all_services
from services.gateway.tests.behind import insert_key


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def open_door(
    template_database: TemplateDatabase, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Tenant]:
    """A product whose operator has turned development mode on."""
    key = new_key()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAMSPEC_AMP_DEVELOPMENT_KEY", key)
        async with all_services.running(template_database, tmp_path_factory.mktemp("open")) as running:
            tenant = Tenant(running, "tenant:development", {})
            await tenant.operate("create_scope", {"policy": POLICY})
            await insert_key(
                running.database.dsn, key, tenant=tenant.name, actor="human:developer", key_id="key:dev", rights=()
            )
            yield tenant


async def test_a13_who_calls_is_taken_at_its_word(open_door: Tenant) -> None:
    alpha, beta = ({"X-AMP-Agent-ID": name} for name in ("alpha", "beta"))
    made = await open_door.call("POST", "/memories", cell(), headers=alpha)
    assert made.status == 201, made.body
    one = f"/memories/{made.body['id']}"
    assert (await open_door.call("GET", one, headers=alpha)).status == 200
    assert (await open_door.call("GET", one, headers=beta)).status == 403
    assert (await open_door.call("GET", one)).body["error"]["code"] == "MISSING_AGENT_ID"
    assert (await open_door.call("POST", "/memories", cell())).body["error"]["code"] == "MISSING_AGENT_ID"
    named = cell(identity={"owner_id": "x", "owner_type": "user", "created_by": "beta"})
    by_name = await open_door.call("POST", "/memories", named)
    assert (by_name.status, by_name.body["identity"]["created_by"]) == (201, "beta")
    spec = await open_door.call("GET", "/spec")
    assert spec.body["capabilities"]["api_keys_required"] is False


async def test_a21_a_key_that_is_sent_must_still_be_one(open_door: Tenant) -> None:
    for key in ("wrong", new_key()):
        answer = await open_door.call("GET", "/memories", key=key, headers={"X-AMP-Agent-ID": "alpha"})
        assert (answer.status, answer.body["error"]["code"]) == (401, "UNAUTHENTICATED")
    mine = await open_door.key("gamma")
    answer = await open_door.call("GET", "/memories", key=mine, headers={"X-AMP-Agent-ID": "alpha"})
    assert answer.status == 401
