"""Deliberately broken variants of the service: each breaks one promise, and names a case that must notice it."""

from __future__ import annotations

import itertools
import json
from typing import Any

from libs.pamspec_conformance.tests.broken_door import Answer, Document, Exchange, Variant

_numbers = itertools.count()


def envelopes(document: Any) -> list[Document]:
    """Every envelope in an answer."""
    if not isinstance(document, dict):
        return []
    found = [document["envelope"]] if "envelope" in document else []
    found += [item["envelope"] for item in document.get("items", []) if "envelope" in item]
    return found + list(document.get("versions", []))


def without(document: Document, *names: str) -> Document:
    """A document without these members."""
    return {name: value for name, value in document.items() if name not in names}


class LosesIdempotency(Variant):
    breaks = "lite.create_retry_answers_the_first_outcome"

    async def __call__(self, exchange: Exchange) -> Answer:
        headers = without(exchange.headers, "Idempotency-Key")
        return await exchange.forward(without(exchange.document, "idempotency_key"), headers=headers)


class TakesOtherContentUnderAKey(Variant):
    breaks = "lite.create_retry_with_other_content_is_refused"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if answer.code != "duplicate_operation":
            return answer
        return await exchange.forward(headers=without(exchange.headers, "Idempotency-Key"))


class ForgetsKeysAtARestart(Variant):
    """Keeps outcomes in memory alone; `memory` is what a restart clears."""

    breaks = "lite.create_retry_survives_a_restart"

    async def __call__(self, exchange: Exchange) -> Answer:
        key = exchange.headers.get("Idempotency-Key")
        if key is None:
            return await exchange.forward()
        if key not in exchange.memory:
            headers = without(exchange.headers, "Idempotency-Key")
            exchange.memory[key] = await exchange.forward(headers=headers)
        found: Answer = exchange.memory[key]
        return found


class RunsAnUpdateTwice(Variant):
    breaks = "lite.update_retry_answers_the_first_outcome"

    async def __call__(self, exchange: Exchange) -> Answer:
        if exchange.operation != "update":
            return await exchange.forward()
        return await exchange.forward(without(exchange.document, "idempotency_key"))


class RetriesRefusals(Variant):
    breaks = "lite.refusals_repeat_too"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if answer.code is None:
            return answer
        return await exchange.forward(headers=without(exchange.headers, "Idempotency-Key"))


class IgnoresTheExpectedVersion(Variant):
    breaks = "lite.stale_update_conflicts"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if answer.code != "version_conflict" or "update" not in exchange.operation:
            return answer
        current = answer.document["error"]["details"]["current_version_id"]
        return await exchange.forward({**exchange.document, "expected_version_id": current})


class LetsALateDeleteWin(Variant):
    breaks = "lite.stale_delete_conflicts"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if answer.code != "version_conflict" or exchange.operation != "delete":
            return answer
        current = answer.document["error"]["details"]["current_version_id"]
        return await exchange.forward({**exchange.document, "expected_version_id": current})


class ServesADeletedObject(Variant):
    breaks = "lite.delete_leaves_a_terminal_tombstone"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        for envelope in envelopes(answer.document):
            if envelope["availability_state"] == "available":
                exchange.memory[envelope["object_id"]] = envelope
        if answer.code == "object_deleted" and exchange.operation == "read":
            return answer.changed({"envelope": exchange.memory[exchange.document["object_id"]]}, 200)
        return answer


class LeaksAForeignScope(Variant):
    breaks = "lite.scope_bounds_reads"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        scopes: list[str] = exchange.memory.setdefault("scopes", [])
        if exchange.operation == "create_scope":
            scopes.append(exchange.document["scope_id"])
        if answer.code == "object_not_found" and exchange.operation == "read":
            for scope_id in scopes:
                other = await exchange.forward({**exchange.document, "scope_id": scope_id})
                if other.code is None:
                    return other
        return answer


class WritesThroughAnotherScope(Variant):
    breaks = "lite.scope_bounds_writes"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        scopes: list[str] = exchange.memory.setdefault("scopes", [])
        if exchange.operation == "create_scope":
            scopes.append(exchange.document["scope_id"])
        if answer.code == "object_not_found" and exchange.operation == "update":
            for scope_id in scopes:
                other = await exchange.forward({**exchange.document, "scope_id": scope_id})
                if other.code is None:
                    return other
        return answer


class QueriesEverything(Variant):
    breaks = "lite.query_without_a_scope_is_refused"

    async def __call__(self, exchange: Exchange) -> Answer:
        if exchange.operation == "create_scope":
            exchange.memory["scope"] = exchange.document["scope_id"]
        if exchange.operation == "query" and "scope_id" not in exchange.document:
            return await exchange.forward({**exchange.document, "scope_id": exchange.memory["scope"]})
        return await exchange.forward()


class MixesScopesInQueries(Variant):
    breaks = "lite.scope_bounds_queries"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation == "query" and answer.code is None:
            items = exchange.memory.setdefault("items", [])
            items += [item for item in answer.document["items"] if item not in items]
            return answer.changed({**answer.document, "items": list(items)})
        return answer


class ShowsStrangersAround(Variant):
    breaks = "lite.strangers_see_no_scope"
    stranger = True

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if answer.code != "scope_not_found":
            return answer
        return await exchange.forward(headers={**exchange.headers, "Authorization": f"Bearer {exchange.door.key}"})


class AllowsAnyTransition(Variant):
    breaks = "lite.lifecycle_refuses_forbidden_edges"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if answer.code != "invalid_state_transition":
            return answer
        read = await exchange.forward(
            {name: exchange.document[name] for name in ("scope_id", "object_id")}, operation="read"
        )
        envelope = read.document["envelope"]
        made = {name: envelope[name] for name in ("object_id", "version_id", "scope_id", "sequence")}
        return answer.changed({**made, "envelope": envelope}, 200)


class MovesAnotherDimension(Variant):
    breaks = "core.the_four_dimensions_are_independent"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation != "transition" or answer.code is not None or exchange.memory.get("moved"):
            return answer
        if answer.document["envelope"]["validation_state"] == "disputed":
            exchange.memory["moved"] = True
            await exchange.forward(
                {
                    **without(exchange.document, "dimension", "target_state"),
                    "expected_version_id": answer.document["version_id"],
                    "dimension": "lifecycle",
                    "target_state": "deprecated",
                }
            )
            answer.document["envelope"]["lifecycle_state"] = "deprecated"
            return answer.changed(answer.document)
        return answer


class ReusesAVersionId(Variant):
    breaks = "core.version_ids_and_sequences_are_never_reused"

    async def __call__(self, exchange: Exchange) -> Answer:
        if exchange.operation != "update":
            return await exchange.forward()
        known: dict[str, str] = exchange.memory.setdefault("versions", {})
        sent = exchange.document["expected_version_id"]
        answer = await exchange.forward({**exchange.document, "expected_version_id": known.get(sent, sent)})
        if answer.code is None:
            known[sent] = answer.document["version_id"]
            return answer.changed({**answer.document, "version_id": sent})
        return answer


class LetsAnIdBeUsedAgain(Variant):
    breaks = "core.an_object_id_is_never_reused"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation == "create" and answer.code in ("version_conflict", "object_deleted"):
            return await exchange.forward(without(exchange.document, "object_id"))
        return answer


class AddsANonce(Variant):
    breaks = "core.envelopes_have_no_fields_per_call"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        found = envelopes(answer.document)
        for envelope in found:
            envelope["provenance"]["integrity_ref"] = f"nonce:{next(_numbers)}"
        return answer.changed(answer.document) if found else answer


class DropsProvenance(Variant):
    breaks = "core.provenance_is_never_dropped"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation != "inspect_history" or answer.code is not None:
            return answer
        for version in answer.document["versions"][:-1]:
            version["provenance"].pop("source_ref", None)
        return answer.changed(answer.document)


class MergesContent(Variant):
    breaks = "core.content_is_never_merged"

    async def __call__(self, exchange: Exchange) -> Answer:
        if exchange.operation != "update":
            return await exchange.forward()
        about = {name: exchange.document[name] for name in ("scope_id", "object_id")}
        before = (await exchange.forward(about, operation="read")).document["envelope"]["canonical_content"]
        merged = {**before, **exchange.document["canonical_content"]}
        return await exchange.forward({**exchange.document, "canonical_content": merged})


class RoundsNumbers(Variant):
    breaks = "core.any_json_value_comes_back"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        return answer.changed(json.loads(json.dumps(answer.document), parse_int=_limited))


def _limited(text: str) -> int:
    return int(text) if len(text) < 16 else int(float(text))


class TakesAnyType(Variant):
    breaks = "core.a_relationship_is_no_object_type"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation == "create" and answer.code in ("invalid_object", "invalid_request"):
            return await exchange.forward({**exchange.document, "object_type": "claim"})
        return answer


class OpensTheErrorEnvelope(Variant):
    breaks = "core.errors_are_the_core_envelope"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if answer.code is None:
            return answer
        return answer.changed({**answer.document, "request": exchange.operation})


class TellsContentInErrors(Variant):
    breaks = "core.errors_tell_no_content"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if answer.code is None:
            return answer
        answer.document["error"]["message"] += f" You sent {json.dumps(exchange.document)}"
        return answer.changed(answer.document)


class RewritesAPastVersion(Variant):
    breaks = "versioning.past_versions_never_change"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation != "read" or "version_id" not in exchange.document:
            return answer
        now = await exchange.forward(without(exchange.document, "version_id"))
        answer.document["envelope"]["canonical_content"] = now.document["envelope"]["canonical_content"]
        return answer.changed(answer.document)


class ForgetsThePast(Variant):
    breaks = "versioning.reads_as_of_a_position"

    async def __call__(self, exchange: Exchange) -> Answer:
        if exchange.operation != "read":
            return await exchange.forward()
        return await exchange.forward(without(exchange.document, "as_of"))


class RepeatsASequence(Variant):
    breaks = "ledger.the_order_is_strict"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation != "inspect_history" or answer.code is not None or len(answer.document["events"]) < 2:
            return answer
        first, second = answer.document["events"][:2]
        second["sequence"] = first["sequence"]
        return answer.changed(answer.document)


class RewritesTheLedger(Variant):
    breaks = "lite.ledger_is_append_only"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation != "inspect_history" or answer.code is not None:
            return answer
        kinds = [event["event_type"] for event in answer.document["events"]]
        if "object_deleted" in kinds:
            gone = answer.document["events"][kinds.index("object_deleted")]["object_id"]
            events = [
                event
                for event in answer.document["events"]
                if event.get("object_id") != gone or event["event_type"] == "object_deleted"
            ]
            return answer.changed({**answer.document, "events": events})
        return answer


class IgnoresAHold(Variant):
    breaks = "ledger.a_legal_hold_bites"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if answer.code != "legal_hold":
            return answer
        release = {**exchange.document, "dimension": "retention", "target_state": "retained"}
        freed = await exchange.forward(release, operation="transition")
        return await exchange.forward({**exchange.document, "expected_version_id": freed.document["version_id"]})


class KeepsDeletedContent(Variant):
    breaks = "ledger.tombstones_keep_the_ledger_and_lose_the_content"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        contents: Document = exchange.memory.setdefault("contents", {})
        for envelope in envelopes(answer.document):
            if envelope["canonical_content"] != {"tombstone": True}:
                contents[envelope["version_id"]] = envelope["canonical_content"]
        if exchange.operation == "inspect_history" and answer.code is None:
            for version in answer.document["versions"]:
                kept = contents.get(version["version_id"], version["canonical_content"])
                version["canonical_content"] = kept
            return answer.changed(answer.document)
        return answer


class SplitsAtomicBatches(Variant):
    breaks = "ledger.an_atomic_batch_is_all_or_nothing"

    async def __call__(self, exchange: Exchange) -> Answer:
        if exchange.operation != "batch":
            return await exchange.forward()
        return await exchange.forward({**exchange.document, "atomic": False})


class SwapsFromAndTo(Variant):
    breaks = "ledger.transition_events_say_from_and_to"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation != "inspect_history" or answer.code is not None:
            return answer
        for event in answer.document["events"]:
            payload = event.get("payload", {})
            if "from" in payload:
                payload["from"], payload["to"] = payload["to"], payload["from"]
        return answer.changed(answer.document)
