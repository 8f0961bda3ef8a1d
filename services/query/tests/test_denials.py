"""Refused reads leave one entry, which auditors, administrators and the one refused can see, and nobody else."""

from __future__ import annotations

import orjson

from pamspec_cli.servers.databases import Database
from pamspec_common.peers import LocalPeer
from pamspec_query.app import build
from services.query.tests.door import Conn, Door, settings
from services.query.tests.exporting import Taking
from services.query.tests.seeds import TENANT
from services.query.tests.writing import SCOPE, Writer


async def test_refused_reads_are_told_once_and_only_to_whom_they_concern(
    database: Database, seeding: Conn, door: Door, writer: Writer
) -> None:
    made = await writer.create("secret")
    service = build(settings(database), LocalPeer(writer.service))
    await service.start()
    reader = Door(service, door.as_("agent:reading", roles=("reader",)).principal)
    for operation in ("list_holds", "list_policy_versions", "list_holds"):
        assert (await reader.refused(operation, scope_id=SCOPE))["code"] == "access_denied"
    taking = Taking(service, reader.principal, orjson.dumps({"scope_id": SCOPE}))
    await taking.task
    assert taking.status == 403
    assert (await reader.refused("read", scope_id=SCOPE, object_id="obj:none"))["code"] == "object_not_found"
    nobody = Door(service, door.as_("agent:outside", roles=()).principal)
    assert (await nobody.refused("read", scope_id=SCOPE, object_id=made["object_id"]))["code"] == "scope_not_found"
    assert (await nobody.refused("read", scope_id="workspace:none", object_id="obj:x"))["code"] == "scope_not_found"
    await service.stop()

    async def seen(by: Door) -> dict[str, dict[str, object]]:
        history = await by.ok("inspect_history", scope_id=SCOPE, after_sequence=0, event_classes=["access_denied"])
        return {event["actor"]["actor_id"]: event["payload"] for event in history["events"]}

    told = await seen(door)
    assert told.keys() == {"agent:reading", "agent:outside"}
    assert (told["agent:reading"]["count"], told["agent:reading"]["operations"]) == (
        4, ["export", "list_holds", "list_policy_versions"]
    )  # fmt: skip
    assert (told["agent:outside"]["count"], told["agent:outside"]["operation"]) == (1, "read")
    assert (await seen(door.as_("human:auditor", roles=("auditor",)))).keys() == told.keys()
    assert (await seen(door.as_("agent:reading", roles=("reader",)))).keys() == {"agent:reading"}
    assert await seen(door.as_("agent:third", roles=("reader",))) == {}
    rows = await seeding.fetch(
        "SELECT subject FROM core.administration WHERE tenant_id = $1 AND outcome = 'denied'", TENANT
    )
    assert [row["subject"] for row in rows] == ["workspace:none"]
