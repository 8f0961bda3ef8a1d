"""`pamspec audit` over a running product."""

import json

from libs.conftest import Product
from libs.pamspec_cli.tests.test_commands import Shell, shell

__all__ = ["shell"]


async def test_the_audit_log_is_listed_and_exported_without_content(product: Product, shell: Shell) -> None:
    await shell("create", "--scope", shell.scope, "--content", '{"secret": "MARKED"}')
    give = ["--give", "reader", "--actor", "agent:planner", "--basis", "ticket 7"]
    await shell("roles", "--scope", shell.scope, *give)
    listed = await shell("audit", "--scope", shell.scope)
    assert "bind_role agent:planner  reader" in listed
    lines = [json.loads(line) for line in (await shell("audit", "export", "--scope", shell.scope)).splitlines()]
    assert {line["kind"] for line in lines} == {"administration", "event"}
    assert all(line["policy_version"] and line["actor_id"] and line["done_at"] for line in lines)
    (made,) = [line for line in lines if line.get("event_type") == "object_created"]
    assert "MARKED" not in json.dumps(lines)
    later = await shell("audit", "export", "--scope", shell.scope, "--since", made["done_at"], "--actor", "agent:never")
    assert later == ""
    assert "create_scope " + shell.scope in await shell("audit", "--operation", "create_scope")
    everything = await shell("audit", "export", "--all", "--operation", "bind_role")
    assert shell.scope in everything
