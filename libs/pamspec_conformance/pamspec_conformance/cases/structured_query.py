"""STRUCTURED-QUERY (18.7): filters, conditions and times."""

from __future__ import annotations

from typing import Any

from pamspec_conformance.case import CaseList
from pamspec_conformance.trial import PROVENANCE, Trial

LIST = CaseList("STRUCTURED-QUERY")
case = LIST.case


async def _one_of_each(t: Trial) -> dict[str, str]:
    """Objects by a word for the state in which each differs from what is trusted."""
    found = {"trusted": (await t.claim())["object_id"]}
    for dimension, target in (
        ("lifecycle", "deprecated"),
        ("lifecycle", "archived"),
        ("validation", "disputed"),
        ("retention", "expired"),
    ):
        found[target] = (await t.transition(await t.claim(), dimension, target))["object_id"]
    found["scratch"] = (await t.claim(lifecycle_state="scratch"))["object_id"]
    found["unverified"] = (await t.claim(validation_state="unverified"))["object_id"]
    return found


@case("P157", "P222")
async def the_default_is_trusted_retrieval(t: Trial) -> None:
    """Without filters a query answers what is active, available, retained and corroborated, and nothing else."""
    made = await _one_of_each(t)
    t.same(await t.found(), [made["trusted"]], "found by default")


@case("P222", "P85", "P86", "P88", "P87")
async def each_state_can_be_asked_for(t: Trial) -> None:
    """A filter on one of the four states answers exactly the objects in it, the others keeping their default."""
    made = await _one_of_each(t)
    gone = await t.delete(await t.claim())
    for name, state in (
        ("lifecycle_state", "deprecated"),
        ("lifecycle_state", "archived"),
        ("lifecycle_state", "scratch"),
        ("validation_state", "disputed"),
        ("validation_state", "unverified"),
        ("retention_state", "expired"),
    ):
        t.same(await t.found({"filters": {name: [state]}}), [made[state]], f"found with {name} {state}")
    t.same(await t.found({"filters": {"availability_state": ["deleted"]}}), [gone["object_id"]], "deleted ones")
    both = await t.found({"filters": {"lifecycle_state": ["deprecated", "archived"]}})
    t.same(sorted(both), sorted([made["deprecated"], made["archived"]]), "found with two states")


@case("P147", "P222")
async def filters_by_type_and_provenance(t: Trial) -> None:
    """Filters on object_type and provenance_id answer exactly the objects that have them."""
    claim, decision = await t.claim(), await t.claim(object_type="decision")
    t.same(await t.found({"filters": {"object_type": ["decision"]}}), [decision["object_id"]], "found by type")
    wanted = claim["envelope"]["provenance"]["provenance_id"]
    t.same(await t.found({"filters": {"provenance_id": [wanted]}}), [claim["object_id"]], "found by provenance")
    t.same(await t.found({"filters": {"object_type": ["task"]}}), [], "found by a type that nothing has")


@case("P147")
async def conditions_reach_envelope_and_content(t: Trial) -> None:
    """Conditions on members of the envelope and on places in the content select exactly what meets them."""
    made = [
        await t.claim({"n": number, "tags": [f"t{number % 2}"], "who": {"name": f"name {number}"}})
        for number in range(4)
    ]
    ids = [one["object_id"] for one in made]
    asked: list[tuple[dict[str, Any], list[int]]] = [
        ({"field": "content:/n", "op": "eq", "value": 2}, [2]),
        ({"field": "content:/n", "op": "ne", "value": 2}, [0, 1, 3]),
        ({"field": "content:/n", "op": "gt", "value": 1}, [2, 3]),
        ({"field": "content:/n", "op": "lte", "value": 1}, [0, 1]),
        ({"field": "content:/n", "op": "in", "value": [0, 3, 9]}, [0, 3]),
        ({"field": "content:/n", "op": "nin", "value": [0, 3]}, [1, 2]),
        ({"field": "content:/tags", "op": "contains", "value": "t1"}, [1, 3]),
        ({"field": "content:/who/name", "op": "starts_with", "value": "name"}, [0, 1, 2, 3]),
        ({"field": "content:/missing", "op": "exists", "value": True}, []),
        ({"field": "object_id", "op": "eq", "value": ids[1]}, [1]),
        ({"field": "version_id", "op": "eq", "value": made[3]["version_id"]}, [3]),
        ({"field": "actor.actor_id", "op": "ne", "value": "human:nobody"}, [0, 1, 2, 3]),
        (
            {
                "and": [
                    {"field": "content:/n", "op": "gte", "value": 1},
                    {"not": [{"field": "content:/n", "op": "eq", "value": 3}]},
                ]
            },
            [1, 2],
        ),
        (
            {"or": [{"field": "content:/n", "op": "eq", "value": 0}, {"field": "content:/n", "op": "eq", "value": 3}]},
            [0, 3],
        ),
    ]
    for where, due in asked:
        found = await t.found({"where": where})
        t.same(sorted(found), sorted(ids[number] for number in due), f"found by {where}")


@case("P147", "P150", "P11")
async def values_of_filters_are_literal(t: Trial) -> None:
    """Wildcards, quotes and operators in a value are text: they widen nothing."""
    await t.claim({"s": "abc"})
    odd = await t.claim({"s": "a%_c' OR '1'='1"})
    for value in ("a%", "%", "_", "a_c", "' OR '1'='1", "abc' --"):
        t.same(await t.found({"where": {"field": "content:/s", "op": "eq", "value": value}}), [], f"found by {value!r}")
    exact = {"field": "content:/s", "op": "eq", "value": "a%_c' OR '1'='1"}
    t.same(await t.found({"where": exact}), [odd["object_id"]], "found by the exact value")


@case("P147", "P222")
async def what_a_query_cannot_do_is_refused(t: Trial) -> None:
    """Unknown kinds, members, fields, operators, types and limits are invalid_request, never ignored."""
    queries: list[dict[str, Any]] = [
        {"kind": "no_such_kind"},
        {"kind": "structured", "no_such_member": 1},
        {"kind": "structured", "filters": {"no_such_filter": ["x"]}},
        {"kind": "structured", "filters": {"lifecycle_state": ["no_such_state"]}},
        {"kind": "structured", "where": {"field": "no_such_field", "op": "eq", "value": 1}},
        {"kind": "structured", "where": {"field": "object_id", "op": "no_such_op", "value": 1}},
        {"kind": "structured", "where": {"field": "sequence", "op": "gt", "value": "text"}},
        {"kind": "structured", "filters": {"object_type": {"$ne": None}}},
    ]
    for query in queries:
        await t.refused("invalid_request", "query", query=query)
    for limit in (0, -1, 1001, "ten"):
        await t.refused("invalid_request", "query", query={"kind": "structured"}, pagination={"limit": limit})


@case("P222", "P152", "P194")
async def temporal_queries_are_half_open(t: Trial) -> None:
    """A query over a time basis includes its beginning and not its end; what has no such time is left out."""
    days = [f"2020-01-0{day}T00:00:00.000000Z" for day in (1, 2, 3)]
    for basis in ("observed_at", "asserted_at"):
        scope_id = await t.new_scope()
        made = [await t.claim(scope_id=scope_id, **{basis: day}) for day in days]
        await t.claim(scope_id=scope_id)
        query = {"kind": "temporal", "temporal_basis": basis, "range": {"from": days[0], "to": days[2]}}
        found = await t.found(query, scope_id=scope_id)
        t.same(sorted(found), sorted(one["object_id"] for one in made[:2]), f"found by {basis}")


@case("P222", "P147")
async def temporal_queries_over_validity_and_record(t: Trial) -> None:
    """Validity, record time and ledger sequence are bases of their own."""
    early = await t.claim(valid_from="2020-01-01T00:00:00Z", valid_until="2021-01-01T00:00:00Z")
    late = await t.claim(valid_from="2021-01-01T00:00:00Z")
    span = {"from": "2020-03-01T00:00:00Z", "to": "2020-04-01T00:00:00Z"}
    found = await t.found({"kind": "temporal", "temporal_basis": "valid_time", "range": span})
    t.same(found, [early["object_id"]], "found by validity")
    for basis in ("recorded_at", "committed_at"):
        since = {"from": late["envelope"][basis]}
        found = await t.found({"kind": "temporal", "temporal_basis": basis, "range": since})
        t.same(found, [late["object_id"]], f"found by {basis}")
    query = {"kind": "temporal", "temporal_basis": "sequence", "range": {"from": 1, "to": 2}}
    t.same(await t.found(query), [early["object_id"]], "found by sequence")


@case("P222", "P164", "P194")
async def queries_as_of_a_past_position(t: Trial) -> None:
    """A query as of a position answers what was current then, states and content included."""
    one = await t.claim({"n": 1})
    changed = await t.update(one, {"n": 2})
    await t.transition(changed, "lifecycle", "archived")
    other = await t.claim({"n": 3})
    for position, due in ((1, {"n": 1}), (2, {"n": 2})):
        answer = await t.ok("query", query={"kind": "structured", "as_of": {"ledger_sequence": position}})
        t.same([item["envelope"]["canonical_content"] for item in answer["items"]], [due], f"as of {position}")
    t.same(await t.found({"as_of": {"ledger_sequence": 3}}), [], "as of the archiving")
    t.same(await t.found(), [other["object_id"]], "found now")


@case("P142", "P87", "P191")
async def deleted_objects_are_gone_from_every_query(t: Trial) -> None:
    """A deleted object is in no answer that does not name its state, at past positions neither."""
    made = await t.claim({"word": "secret-9aa"})
    await t.delete(made)
    where = {"field": "content:/word", "op": "eq", "value": "secret-9aa"}
    for query in ({}, {"trust": "working"}, {"where": where}, {"as_of": {"ledger_sequence": 1}}):
        reply = await t.send("query", query={"kind": "structured", **query})
        t.check(b"secret-9aa" not in reply.body, "a query answers deleted content")
        t.check(reply.refusal is not None or not reply.document["items"], "a query answers a deleted object")


@case("P147", "P120")
async def members_can_be_projected(t: Trial) -> None:
    """A query or read with fields answers those members and no others."""
    made = await t.claim({"n": 1})
    fields = ["object_id", "lifecycle_state"]
    due = {name: made["envelope"][name] for name in fields}
    answer = await t.ok("query", query={"kind": "structured"}, fields=fields)
    t.same([item.get("projection") for item in answer["items"]], [due], "the projection of a query")
    read = await t.ok("read", object_id=made["object_id"], fields=fields)
    t.same(read.get("projection"), due, "the projection of a read")


@case("P122", "P222", needs=("stranger",))
async def equal_ids_of_strangers_stay_apart(t: Trial) -> None:
    """A scope and an object of the same ids elsewhere are other things; queries never mix them."""
    mine = await t.claim({"whose": "mine"}, object_id="obj:same")
    theirs: dict[str, Any] = {
        "object_type": "claim",
        "canonical_content": {"whose": "theirs"},
        "provenance": PROVENANCE,
    }
    await t.ok("create_scope", by=t.stranger, scope_id=mine["scope_id"], scope_kind="workspace")
    await t.ok("create", by=t.stranger, scope_id=mine["scope_id"], object_id="obj:same", **theirs)
    t.same((await t.read("obj:same"))["canonical_content"], {"whose": "mine"}, "the object read")
    answer = await t.ok("query", query={"kind": "structured", "trust": "all"})
    t.same([item["envelope"]["canonical_content"] for item in answer["items"]], [{"whose": "mine"}], "found")
