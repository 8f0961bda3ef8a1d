"""Broken variants of relationships, promotion, erasure, restoring, snapshots and export."""

from __future__ import annotations

from typing import Any

from libs.pamspec_conformance.tests.broken_door import Answer, Exchange, Variant
from libs.pamspec_conformance.tests.variants import KeepsDeletedContent, without


class Asks(Variant):
    """Sends one operation's document in another form."""

    operation = ""

    def request(self, document: Any) -> Any:
        """The document to send instead."""
        return document

    async def __call__(self, exchange: Exchange) -> Answer:
        if exchange.operation != self.operation:
            return await exchange.forward()
        return await exchange.forward(self.request(exchange.document))


class CrossesScopesFreely(Variant):
    breaks = "relationship.crossing_scopes_needs_policy"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation != "relate" or answer.code != "policy_denied":
            return answer
        near = {"target_object_id": exchange.document["source_object_id"]}
        return await exchange.forward({**without(exchange.document, "target_scope_id"), **near})


class TouchesTheEnds(Variant):
    breaks = "relationship.objects_stay_as_they_are"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation == "relate" and answer.code is None:
            about = {"scope_id": exchange.document["scope_id"], "object_id": exchange.document["source_object_id"]}
            head = (await exchange.forward(about, operation="read")).document["envelope"]
            change = {**about, "expected_version_id": head["version_id"], "provenance": {"activity": "relate"}}
            await exchange.forward(change, operation="update")
        return answer


class TakesASecondEdge(Variant):
    breaks = "relationship.a_second_equal_edge_conflicts"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if answer.code != "relationship_conflict":
            return answer
        return await exchange.forward({**exchange.document, "relationship_type": "references"})


class CorrectsLabels(Asks):
    breaks = "relationship.unknown_labels_are_preserved"
    operation = "relate"

    def request(self, document: Any) -> Any:
        label = document.get("relationship_type", "")
        return {**document, "relationship_type": label.replace("derives_from", "derived_from")}


class ForgetsRelationshipsOfDeletedObjects(Variant):
    breaks = "relationship.relationships_outlive_their_ends"

    async def __call__(self, exchange: Exchange) -> Answer:
        if exchange.operation == "delete" and "object_id" in exchange.document:
            exchange.memory["deleted"] = True
        if exchange.operation == "read" and "relationship_id" in exchange.document and exchange.memory:
            return await exchange.forward({**exchange.document, "relationship_id": "rel:none"})
        return await exchange.forward()


class RelatesToWhatIsMissing(Variant):
    breaks = "relationship.ends_must_exist"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation != "relate" or answer.code != "object_not_found":
            return answer
        return await exchange.forward({**exchange.document, "target_object_id": exchange.document["source_object_id"]})


class WalksOnAndOn(Asks):
    breaks = "relationship.walks_to_its_depth_and_direction"
    operation = "query"

    def request(self, document: Any) -> Any:
        walk = document.get("traverse")
        return {**document, "traverse": {**walk, "depth": 8}} if walk else document


class IgnoresTheWalk(Asks):
    breaks = "relationship.hidden_objects_are_no_way_through"
    operation = "query"

    def request(self, document: Any) -> Any:
        return without(document, "traverse")


class PromotesWithoutALink(Variant):
    breaks = "relationship.promotion_links_what_it_makes"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation != "inspect_history" or answer.code:
            return answer
        events = [event for event in answer.document["events"] if event["event_type"] != "relationship_created"]
        return answer.changed({**answer.document, "events": events})


class RedactsTheHeadAlone(KeepsDeletedContent):
    breaks = "ledger.redaction_erases_every_version"


class RedactsEverything(Asks):
    breaks = "ledger.redaction_by_path_keeps_the_rest"
    operation = "redact"

    def request(self, document: Any) -> Any:
        return {**document, "redaction_target": {"whole": True}}


class IgnoresTheChoiceOfVersions(Asks):
    breaks = "ledger.chosen_past_versions_are_erased"
    operation = "redact"

    def request(self, document: Any) -> Any:
        return without(document, "version_ids")


class RestoresNothing(Asks):
    breaks = "versioning.an_old_version_is_restored_as_a_new_one"
    operation = "update"

    def request(self, document: Any) -> Any:
        return without(document, "restore_version_id")


class LetsSnapshotsMove(Asks):
    breaks = "evaluation.a_snapshot_never_changes"
    operation = "read"

    def request(self, document: Any) -> Any:
        return without(document, "snapshot_id")


class QueriesNowInsteadOfTheSnapshot(Asks):
    breaks = "structured_query.queries_at_a_snapshot_repeat"
    operation = "query"

    def request(self, document: Any) -> Any:
        return without(document, "snapshot_id")


class SealsEverything(Asks):
    breaks = "evaluation.membership_is_what_was_included"
    operation = "seal_snapshot"

    def request(self, document: Any) -> Any:
        return without(document, "included_object_ids")


class TakesTheWallClock(Asks):
    breaks = "evaluation.the_clock_of_a_run_is_deterministic"
    operation = "seal_snapshot"

    def request(self, document: Any) -> Any:
        return without(document, "deterministic_clock")


class SeesNoDifference(Variant):
    breaks = "evaluation.snapshots_can_be_compared"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation != "compare_snapshots" or answer.code:
            return answer
        return answer.changed({**answer.document, "changed": []})


class CutsTheExport(Variant):
    breaks = "core.export_is_a_whole_representation"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation == "export" and answer.raw is not None:
            lines = answer.raw.splitlines(keepends=True)
            answer.raw = b"".join(lines[: len(lines) // 2])
        return answer
