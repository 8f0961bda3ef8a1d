"""Broken variants of delegated authority: each forgets one of the bounds of a grant."""

from __future__ import annotations

from typing import Any

from libs.pamspec_conformance.tests.broken_door import Answer, Document, Exchange, Variant
from libs.pamspec_conformance.tests.variants import envelopes, without


class _Permits(Variant):
    """Permits what was permitted before under the same grant, or answers the grant that it has seen."""

    reasons: frozenset[str] = frozenset()

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation == "grant_delegation" and answer.status == 201:
            exchange.memory[answer.document["delegation_id"]] = answer.document["envelope"]
        if exchange.operation != "check_delegation" or answer.code != "access_denied":
            return answer
        if answer.document["error"]["details"].get("reason") not in self.reasons:
            return answer
        delegation_id = exchange.document["delegation_id"]
        document = {
            "delegation_id": delegation_id,
            "envelope": exchange.memory[delegation_id],
            "remaining_uses": None,
            "operation_id": "op:x",
        }
        return Answer(200, document, answer.headers)


class ForgetsRevocations(_Permits):
    breaks = "delegation.a_revocation_is_effective_at_once"
    reasons = frozenset({"revoked"})


class IgnoresTheLimit(_Permits):
    breaks = "delegation.a_usage_limit_is_kept"
    reasons = frozenset({"usage_limit"})


class IgnoresTheWindow(_Permits):
    breaks = "delegation.outside_its_window_it_is_not_effective"
    reasons = frozenset({"not_before", "not_after"})


class PermitsAnybody(_Permits):
    breaks = "delegation.a_check_answers_the_grant"
    reasons = frozenset({"delegate"})


class PermitsEveryOperation(_Permits):
    breaks = "delegation.a_check_answers_the_grant"
    reasons = frozenset({"operation"})


class PermitsEveryObject(_Permits):
    breaks = "delegation.granted_objects_bound_it"
    reasons = frozenset({"object_id"})


class CountsDeniedChecks(Variant):
    """Uses the grant up by what it refuses."""

    breaks = "delegation.a_usage_limit_is_kept"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation == "check_delegation" and answer.code == "access_denied":
            await exchange.forward(
                {**without(exchange.document, "operation_id", "idempotency_key"), "operation": "read"}
            )
        return answer


class TakesInvertedWindows(Variant):
    breaks = "delegation.an_inverted_window_is_denied"

    async def __call__(self, exchange: Exchange) -> Answer:
        document: Any = exchange.document
        if exchange.operation == "grant_delegation" and document["not_before"] > document["not_after"]:
            return await exchange.forward(
                {**document, "not_before": document["not_after"], "not_after": document["not_before"]}
            )
        return await exchange.forward()


class DropsUnknownOperations(Variant):
    """Grants what is left of a list that names something unknown."""

    breaks = "delegation.operations_are_of_the_list"

    async def __call__(self, exchange: Exchange) -> Answer:
        document: Any = exchange.document
        if exchange.operation == "grant_delegation" and document["granted_operations"] == ["fly"]:
            return await exchange.forward({**document, "granted_operations": ["read"]})
        return await exchange.forward()


class ForgetsTheGrantInVersions(Variant):
    breaks = "delegation.an_exercise_names_its_grant"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation != "update":
            return answer
        for envelope in envelopes(answer.document):
            envelope["actor"] = without(envelope["actor"], "delegation_id")
        return answer.changed(answer.document)


class HidesExercises(Variant):
    breaks = "delegation.an_exercise_names_its_grant"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if isinstance(answer.document, dict) and "events" in answer.document:
            document: Document = answer.document
            document["events"] = [
                event for event in document["events"] if event.get("event_type") != "delegation_exercised"
            ]
            return answer.changed(document)
        return answer


class TakesMadeUpGrants(Variant):
    breaks = "delegation.a_made_up_grant_opens_nothing"

    async def __call__(self, exchange: Exchange) -> Answer:
        if exchange.operation == "update" and exchange.document.get("delegation_id") == "dlg:none":
            return await exchange.forward(without(exchange.document, "delegation_id"))
        return await exchange.forward()


class RenamesTheDelegate(Variant):
    breaks = "delegation.a_grant_is_a_record"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation == "grant_delegation":
            for envelope in envelopes(answer.document):
                envelope["delegated_actor"] = {**envelope["delegated_actor"], "actor_id": "agent:somebody"}
            return answer.changed(answer.document)
        return answer
