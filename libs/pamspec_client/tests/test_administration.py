"""Administration through the client: keys, tenants, roles, rules, the record; and that no operation is missing."""

import asyncio
import itertools
import typing

import pytest

from libs.conftest import Product
from pamspec_client import AsyncClient, Client, InvalidRequest, ObjectNotFound, VersionConflict
from pamspec_common import contracts

_numbers = itertools.count(1)
PUBLIC = sorted(name for name, operation in contracts.operations().items() if operation.public)
BASIS = "test"


@pytest.mark.parametrize("operation", PUBLIC)
def test_both_clients_have_a_method_for_every_operation(operation: str) -> None:
    """Under its name, taking each member of its request but those that the client makes by itself or that are fixed."""
    name = {"import": "import_"}.get(operation, operation)
    method = getattr(AsyncClient, name)
    assert callable(getattr(Client, name))
    request = typing.get_type_hints(method)["request"]
    taken = set(typing.get_type_hints(typing.get_args(request)[0])) | {"pagination"}
    wanted = set(contracts.schema(f"pamspec:operation:{operation}:request").get("properties", ()))
    made = {"read": {"fields"}, "seal_snapshot": {"sealed"}, "query": {"count"}, "prove_ledger": {"from"}}
    made |= {"subscribe": {"start_sequence"}}
    assert wanted - taken <= made.get(operation, set())


async def test_keys_are_made_listed_replaced_and_ended(product: Product) -> None:
    async with product.client() as client:
        actor = f"agent:keyed-{next(_numbers)}"
        made = await client.create_key(actor_id=actor, roles=["reader"], policy_basis=BASIS)
        assert made.key.roles == ["reader"]
        assert made.secret not in repr(made)
        async with AsyncClient(product.url, made.secret) as other:
            await other.list_scopes()
        rotated = await client.rotate_key(key_id=made.key.key_id, policy_basis=BASIS)
        assert rotated.replaced is not None
        assert rotated.replaced.key_id == made.key.key_id
        listed = (await client.list_keys(actor_id=actor)).keys
        assert {key.key_id for key in listed} == {rotated.key.key_id, made.key.key_id}
        assert (await client.revoke_key(key_id=rotated.key.key_id, policy_basis=BASIS)).changed
        assert not (await client.revoke_key(key_id=rotated.key.key_id, policy_basis=BASIS)).changed


async def test_tenants_and_their_quotas(product: Product) -> None:
    tenant = f"tenant:client-{next(_numbers)}"
    async with product.client() as client:
        assert (await client.create_tenant(tenant_id=tenant, policy_basis=BASIS)).tenant.state == "active"
        assert (await client.suspend_tenant(tenant_id=tenant, policy_basis=BASIS)).tenant.state == "suspended"
        assert (await client.resume_tenant(tenant_id=tenant, policy_basis=BASIS)).changed
        [listed] = (await client.list_tenants(tenant_id=tenant)).tenants
        assert listed.counts is not None
        assert listed.counts["scopes"] == 0
        quotas = {"tenant": {"objects": 5}}
        done = await client.set_quotas(tenant_id=tenant, quotas=quotas, expected_quotas_version=0, policy_basis=BASIS)
        assert done.quotas_version == 1
        with pytest.raises(VersionConflict):
            await client.set_quotas(tenant_id=tenant, quotas=quotas, expected_quotas_version=0, policy_basis=BASIS)
        shown = await client.get_quotas(tenant_id=tenant)
        assert (shown.quotas, shown.used["tenant"]["objects"]) == (quotas, 0)
        counted = await client.offboard_tenant(tenant_id=tenant, policy_basis=BASIS, dry_run=True)
        assert (counted.changed, counted.tenant.state) == (False, "active")
        assert (await client.offboard_tenant(tenant_id=tenant, policy_basis=BASIS)).changed
        assert (await client.list_parked_entries(tenant_id=tenant)).entries == []


async def test_roles_rules_explanations_and_the_record(product: Product) -> None:
    scope = f"workspace:access-{next(_numbers)}"
    async with product.client() as client:
        await client.create_scope(scope_id=scope, scope_kind="workspace")
        bound = await client.bind_role(scope_id=scope, actor_id="agent:a", role="reader", policy_basis=BASIS)
        assert (bound.bound, bound.changed) == (True, True)
        assert [one.role for one in (await client.list_role_bindings(scope_id=scope)).role_bindings] == ["reader"]
        rules = '@id("quiet") forbid (principal, action == Action::"query", resource);'
        dry = await client.set_access_rules(
            scope_id=scope, rules=rules, expected_rules_version=0, policy_basis=BASIS, dry_run=True
        )
        assert (dry.dry_run, dry.rules_version) == (True, 0)
        with pytest.raises(InvalidRequest):
            await client.set_access_rules(scope_id=scope, rules="permit", expected_rules_version=0, policy_basis=BASIS)
        await client.set_access_rules(scope_id=scope, rules=rules, expected_rules_version=0, policy_basis=BASIS)
        assert (await client.get_access_rules(scope_id=scope)).rules == rules
        told = await client.explain_access(scope_id=scope, actor_id="agent:a", action="query")
        assert (told.allowed, told.roles) == (False, ["reader"])
        assert (await client.explain_access(scope_id=scope, actor_id="agent:a", action="read")).allowed
        await client.unbind_role(scope_id=scope, actor_id="agent:a", role="reader", policy_basis=BASIS)
        record = (await client.list_administration(scope_id=scope)).entries
        assert [entry.operation for entry in record] == ["unbind_role", "set_access_rules", "bind_role"]
        own = (await client.list_keys()).keys[0].tenant_id
        with pytest.raises(ObjectNotFound):
            await client.replay_parked_entries(consumer="indexing", tenant_id=own, scope_id=scope, policy_basis=BASIS)
        assert (await client.delete_scope(scope_id=scope, policy_basis=BASIS, dry_run=True)).state == "present"
        assert (await client.delete_scope(scope_id=scope, policy_basis=BASIS)).state == "erasing"


async def test_without_an_event_loop_too(product: Product) -> None:
    def asked() -> tuple[int, int]:
        with Client(product.url, product.key) as client:
            return len(client.list_tenants().tenants), len(client.list_keys().keys)

    tenants, keys = await asyncio.to_thread(asked)
    assert tenants >= 1
    assert keys >= 1
