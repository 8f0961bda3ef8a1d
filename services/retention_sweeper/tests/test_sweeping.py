"""What a sweeper does to the objects of a scope, beside a real write service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from services.retention_sweeper.tests.world import Garden, World, until
from services.write.tests.writer import PROVENANCE, claim

DAY = timedelta(days=1)


async def garden(world: World) -> Garden:
    """A scope of this test alone."""
    return Garden(await world.writer.afresh())


async def test_what_outlived_its_time_expires_once_and_is_told_why(world: World) -> None:
    here = await garden(world)
    await here.govern(ttl_seconds=3_600)
    old = await here.writer.create("old")
    async with world.sweeping(2 * timedelta(hours=1)), world.sweeping(2 * timedelta(hours=1)):
        head = await here.reaches(old, retention_state="expired")
        await here.looked_at()
    assert (head["lifecycle_state"], head["availability_state"]) == ("active", "available")
    [event] = await here.events()
    assert event["event_type"] == "retention_transitioned"
    assert event["payload"]["to"] == "expired"
    private = await here.writer.admin.fetchval(
        "SELECT convert_from(private, 'UTF8') FROM core.version_private WHERE scope_key = $1 AND ledger_seq = $2",
        await here.writer.scope_key(),
        head["sequence"],
    )
    assert "scope-policy/1/retention/default/ttl_seconds" in private
    await here.writer.check_scope()


async def test_young_objects_and_other_types_stay(world: World) -> None:
    here = await garden(world)
    await here.govern(ttl_seconds=86_400)
    young = await here.writer.create("young")
    other = await garden(world)
    stays = await other.writer.create("no policy")
    async with world.sweeping(timedelta(hours=1)):
        await here.looked_at()
    assert (await here.head(young))["retention_state"] == "retained"
    assert (await other.head(stays))["retention_state"] == "retained"
    assert await other.events() == []


async def test_a_new_policy_counts_for_what_was_there_before(world: World) -> None:
    here = await garden(world)
    before = await here.writer.create("before the policy")
    await here.govern(ttl_seconds=86_400 * 365)
    async with world.sweeping(DAY):
        await here.looked_at()
        assert (await here.head(before))["retention_state"] == "retained"
        await here.govern(version=1, ttl_seconds=60)
        await here.reaches(before, retention_state="expired")
        await here.govern(version=2, ttl_seconds=86_400 * 365)
        await here.reaches(before, retention_state="retained")


async def test_validity_ends_and_comes_back_with_a_later_end(world: World) -> None:
    here = await garden(world)
    await here.govern(valid_until=True)
    yesterday, later = (datetime.now(UTC) + days * DAY for days in (-1, 30))
    ended = await here.writer.create("ended", valid_until=yesterday.isoformat())
    endless = await here.writer.create("endless")
    async with world.sweeping():
        head = await here.reaches(ended, retention_state="expired")
        await here.writer.ok(
            "update",
            {
                "scope_id": here.writer.scope,
                "object_id": ended["object_id"],
                "expected_version_id": head["version_id"],
                "canonical_content": "prolonged",
                "provenance": PROVENANCE,
                "valid_until": later.isoformat(),
            },
        )
        await here.reaches(ended, retention_state="retained")
    assert (await here.head(endless))["version_seq"] == 1


async def test_expired_then_pending_then_deleted_by_the_delays_of_the_policy(world: World) -> None:
    here = await garden(world)
    await here.govern(ttl_seconds=60, deletion={"after_seconds": 86_400, "delay_seconds": 86_400 * 2})
    gone = await here.writer.create("SECRET-123")
    async with world.sweeping(timedelta(hours=1)):
        await here.reaches(gone, retention_state="expired")
        await here.looked_at()
    async with world.sweeping(timedelta(hours=25)):
        await here.reaches(gone, retention_state="pending_deletion")
        await here.looked_at()
    assert (await here.head(gone))["availability_state"] == "available"
    async with world.sweeping(timedelta(hours=50)):
        await here.reaches(gone, availability_state="deleted")
        await here.looked_at()
    assert [event["event_type"] for event in await here.events()] == [
        "retention_transitioned", "retention_transitioned", "object_deleted",
    ]  # fmt: skip
    left = await here.writer.count("core.version_private", "content IS NOT NULL")
    assert left == 0
    await here.writer.check_scope()


async def test_old_versions_lose_their_content_and_keep_their_place(world: World) -> None:
    here = await garden(world)
    await here.govern(max_versions=3)
    made = await here.writer.create("version 1")
    for number in range(2, 7):
        made = await here.writer.update(made, f"version {number}")
    async with world.sweeping():
        await until(lambda: _kept(here, 3))
        await here.looked_at()
    rows = await here.writer.admin.fetch(
        "SELECT v.version_seq, p.content IS NOT NULL AS kept FROM core.version v JOIN core.version_private p"
        " USING (scope_key, ledger_seq) WHERE v.object_id = $1 ORDER BY 1",
        made["object_id"],
    )
    assert [row["version_seq"] for row in rows if row["kept"]] == [5, 6, 7]
    assert len(rows) == 7, "the versions and their ledger stay"
    assert len(await here.events()) == 1


async def _kept(here: Garden, count: int) -> bool:
    return await here.writer.count("core.version_private", "content IS NOT NULL") == count


async def test_what_decays_goes_stale_is_read_and_comes_back_or_is_archived(world: World) -> None:
    here = await garden(world)
    await here.govern(decay={"importance_at": "/importance", "archive_after_seconds": 60 * 86_400})
    read, left, kept = [await here.writer.create({"importance": n, "text": "x"}) for n in (0.5, 0.5, 1)]
    key = await here.writer.scope_key()
    async with world.sweeping(52 * DAY):
        for one in (read, left):
            await here.reaches(one, retention_state="expired")
        await here.looked_at()
        await here.writer.admin.execute(
            "INSERT INTO retention.access VALUES ($1, $2, now() + interval '51 days')", key, read["object_id"]
        )
        await here.writer.admin.execute(
            "UPDATE retention.due SET look_at = now() WHERE scope_key = $1 AND object_id = $2", key, read["object_id"]
        )
        await here.reaches(read, retention_state="retained")
        await here.looked_at()
    assert (await here.head(kept))["version_seq"] == 1
    async with world.sweeping(61 * DAY):
        await here.reaches(left, lifecycle_state="archived")
        await here.looked_at()
    assert (await here.head(read))["retention_state"] == "retained"


async def test_what_is_on_hold_waits_for_its_release(world: World) -> None:
    here = await garden(world)
    await here.govern(ttl_seconds=60)
    held = await here.writer.create("held")
    placed = await here.writer.ok("place_hold", {"scope_id": here.writer.scope, "policy_basis": "a suit"})
    key = await here.writer.scope_key()

    async def held_up() -> bool:
        code = await here.writer.admin.fetchval("SELECT held_up FROM retention.due WHERE scope_key = $1", key)
        return bool(code == "legal_hold")

    async with world.sweeping(timedelta(hours=1), retention_retry_s=0.2):
        await until(held_up)
        assert (await here.head(held))["retention_state"] in ("retained", "legal_hold")
        await here.writer.ok(
            "release_hold",
            {"scope_id": here.writer.scope, "hold_id": placed["hold_id"], "policy_basis": "settled"},
        )
        await here.reaches(held, retention_state="expired")


async def test_thousands_are_swept_in_bounded_batches_once_each(world: World) -> None:
    here = await garden(world)
    await here.govern(ttl_seconds=60)
    for _ in range(2):
        items = [{"operation": "create", **claim(here.writer.scope, "x")} for _ in range(1_000)]
        await here.writer.ok("batch", {"scope_id": here.writer.scope, "items": items})

    async def swept() -> bool:
        left = await here.writer.admin.fetchval(
            "SELECT count(*) FROM core.object_head WHERE scope_key = $1 AND retention_state = 'retained'", key
        )
        return bool(left == 0)

    key = await here.writer.scope_key()
    given = {"retention_objects_per_s": 1_000_000, "retention_batch": 500}
    async with world.sweeping(timedelta(hours=1), **given), world.sweeping(timedelta(hours=1), **given):
        await until(swept, 110)
        await here.looked_at()
    by_sweeper = (
        "event_type = 'retention_transitioned' AND convert_from(event, 'UTF8') LIKE '%service:retention_sweeper%'"
    )
    assert await here.writer.count("core.ledger", by_sweeper) == 2_000
    tally = await here.writer.admin.fetchrow(
        "SELECT action, rule, objects FROM retention.tally WHERE scope_key = $1", key
    )
    assert tally is not None
    assert tuple(tally) == ("expire", "retention/default/ttl_seconds", 2_000)


async def test_what_shows_its_hold_costs_no_command_until_its_release(world: World) -> None:
    here = await garden(world)
    await here.govern(ttl_seconds=60)
    made = await here.writer.create("held")
    held = await here.writer.ok("transition", here.writer.change(
        made, dimension="retention", target_state="legal_hold", policy_basis="a suit",
    ))  # fmt: skip
    key = await here.writer.scope_key()

    async def held_up() -> bool:
        code = await here.writer.admin.fetchval("SELECT held_up FROM retention.due WHERE scope_key = $1", key)
        return bool(code == "legal_hold")

    async with world.sweeping(timedelta(hours=1), retention_retry_s=0.1):
        await until(held_up)
        records = await here.writer.count("core.operation_record")
        await here.looked_at()
        assert await here.writer.count("core.operation_record") == records
        await here.writer.ok("transition", here.writer.change(
            held, dimension="retention", target_state="retained", policy_basis="settled",
        ))  # fmt: skip
        await here.reaches(made, retention_state="expired")
