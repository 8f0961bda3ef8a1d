"""Broken variants of queries, subscriptions and the binding."""

from __future__ import annotations

import random
from typing import Any

from libs.pamspec_conformance.tests.broken_door import Answer, Exchange, Variant
from libs.pamspec_conformance.tests.variants import without


class OfQuery(Variant):
    """Changes answers of query alone."""

    def change(self, answer: Answer, exchange: Exchange) -> Any:
        """The document to answer instead."""

    def request(self, exchange: Exchange) -> Any:
        """The document to ask instead."""
        return exchange.document

    async def __call__(self, exchange: Exchange) -> Answer:
        if exchange.operation != "query":
            return await exchange.forward()
        answer = await exchange.forward(self.request(exchange))
        changed = None if answer.code else self.change(answer, exchange)
        return answer if changed is None else answer.changed(changed)


class IgnoresAFilter(OfQuery):
    breaks = "structured_query.each_state_can_be_asked_for"

    def request(self, exchange: Exchange) -> Any:
        query = exchange.document["query"]
        filters = {name: "any" for name in query.get("filters", {}) if name.endswith("_state")}
        return {**exchange.document, "query": {**query, "filters": {**query.get("filters", {}), **filters}}}


class TrustsEverything(OfQuery):
    breaks = "structured_query.the_default_is_trusted_retrieval"

    def request(self, exchange: Exchange) -> Any:
        return {**exchange.document, "query": {"trust": "all", **exchange.document["query"]}}


class IgnoresConditions(OfQuery):
    breaks = "structured_query.conditions_reach_envelope_and_content"

    def request(self, exchange: Exchange) -> Any:
        return {**exchange.document, "query": without(exchange.document["query"], "where")}


class TakesWildcards(OfQuery):
    breaks = "structured_query.values_of_filters_are_literal"

    def request(self, exchange: Exchange) -> Any:
        where = exchange.document["query"].get("where")
        if not where or where.get("op") != "eq" or not str(where["value"]).endswith("%"):
            return exchange.document
        loose = {**where, "op": "starts_with", "value": where["value"].rstrip("%")}
        return {**exchange.document, "query": {**exchange.document["query"], "where": loose}}


class IgnoresUnknownMembers(OfQuery):
    breaks = "structured_query.what_a_query_cannot_do_is_refused"

    def request(self, exchange: Exchange) -> Any:
        return {**exchange.document, "query": without(exchange.document["query"], "no_such_member")}


class ClosesTheRange(OfQuery):
    breaks = "structured_query.temporal_queries_are_half_open"

    def request(self, exchange: Exchange) -> Any:
        span = exchange.document["query"].get("range")
        if not span or not isinstance(span.get("to"), str):
            return exchange.document
        closed = {**span, "to": span["to"].replace(".000000Z", ".000001Z")}
        return {**exchange.document, "query": {**exchange.document["query"], "range": closed}}


class AnswersAsOfNow(OfQuery):
    breaks = "structured_query.queries_as_of_a_past_position"

    def request(self, exchange: Exchange) -> Any:
        return {**exchange.document, "query": without(exchange.document["query"], "as_of")}


class ShufflesItems(OfQuery):
    breaks = "structured_query.equal_queries_have_equal_bytes"

    def change(self, answer: Answer, exchange: Exchange) -> Any:
        items = list(answer.document["items"])
        random.shuffle(items)
        return {**answer.document, "items": items}


class IgnoresTheOrdering(OfQuery):
    breaks = "structured_query.orderings_are_kept_and_ties_broken"

    def request(self, exchange: Exchange) -> Any:
        return without(exchange.document, "ordering")


class LosesAnItemBetweenPages(OfQuery):
    breaks = "structured_query.pages_hold_each_item_once"

    def change(self, answer: Answer, exchange: Exchange) -> Any:
        if "cursor" not in exchange.document.get("pagination", {}):
            return None
        return {**answer.document, "items": answer.document["items"][1:]}


class PagesByOffset(OfQuery):
    """Counts items instead of keeping a position, so that writers push items over the page's edge."""

    breaks = "structured_query.pages_stand_still_while_writers_write"

    async def __call__(self, exchange: Exchange) -> Answer:
        page = exchange.document.get("pagination", {})
        if exchange.operation != "query" or "limit" not in page:
            return await exchange.forward()
        offset = int(page.get("cursor", "0"))
        whole = await exchange.forward({**exchange.document, "pagination": {"limit": 1000}})
        items = whole.document["items"]
        end = offset + page["limit"]
        cursor = str(end) if end < len(items) else None
        return whole.changed({**whole.document, "items": items[offset:end], "next_cursor": cursor})


class TakesAnyCursor(OfQuery):
    breaks = "structured_query.a_cursor_belongs_to_its_query"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation == "query" and answer.code and "pagination" in exchange.document:
            return await exchange.forward({**exchange.document, "pagination": {"limit": 2}})
        return answer


class ClaimsAFloor(OfQuery):
    breaks = "structured_query.answers_name_their_position"

    def request(self, exchange: Exchange) -> Any:
        return without(exchange.document, "min_sequence")


class AnswersWholeEnvelopes(OfQuery):
    breaks = "structured_query.members_can_be_projected"

    def request(self, exchange: Exchange) -> Any:
        return without(exchange.document, "fields")


class OfPoll(Variant):
    """Changes answers of poll alone."""

    def change(self, events: list[Any], exchange: Exchange) -> list[Any]:
        """The events to answer instead."""
        return events

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation != "poll" or answer.code:
            return answer
        return answer.changed({**answer.document, "events": self.change(answer.document["events"], exchange)})


class ReordersEvents(OfPoll):
    breaks = "subscribe.delivers_every_event_in_order"

    def change(self, events: list[Any], exchange: Exchange) -> list[Any]:
        return events[::-1]


class LosesAnEvent(OfPoll):
    breaks = "subscribe.an_acknowledged_write_can_be_polled_at_once"

    def change(self, events: list[Any], exchange: Exchange) -> list[Any]:
        return events[:-1]


class DeliversAgain(OfPoll):
    breaks = "subscribe.the_cursor_moves_on"

    def change(self, events: list[Any], exchange: Exchange) -> list[Any]:
        kept: list[Any] = exchange.memory.setdefault("kept", [])
        kept += events
        return list(kept)


class DeliversAfterTheClose(Variant):
    breaks = "subscribe.close_stops_delivery"

    async def __call__(self, exchange: Exchange) -> Answer:
        if exchange.operation == "unsubscribe":
            found = await exchange.forward(operation="poll")
            return found.changed({"operation_id": "op:none"})
        return await exchange.forward()


class IgnoresTheSubscriptionsFilter(Variant):
    breaks = "subscribe.filters_by_event_class"

    async def __call__(self, exchange: Exchange) -> Answer:
        if exchange.operation != "subscribe":
            return await exchange.forward()
        return await exchange.forward(without(exchange.document, "filter"))


class LetsStrangersPoll(Variant):
    breaks = "subscribe.strangers_cannot_take_a_subscription"
    stranger = True

    async def __call__(self, exchange: Exchange) -> Answer:
        if exchange.operation != "poll":
            return await exchange.forward()
        return await exchange.forward(headers={**exchange.headers, "Authorization": f"Bearer {exchange.door.key}"})


class AnswersAlwaysWith200(Variant):
    breaks = "protocol_binding.codes_have_their_status"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        return Answer(200, answer.document, answer.headers, answer.raw)


class LetsAnybodyIn(Variant):
    breaks = "protocol_binding.credentials_are_required"

    async def __call__(self, exchange: Exchange) -> Answer:
        return await exchange.forward(headers={**exchange.headers, "Authorization": f"Bearer {exchange.door.key}"})


class PutsThePositionIntoTheBody(Variant):
    breaks = "protocol_binding.positions_travel_beside_the_body"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation != "read" or answer.code:
            return answer
        position = next(value for name, value in answer.headers.items() if name.lower() == "pamspec-as-of-sequence")
        return answer.changed({**answer.document, "as_of_sequence": int(position)})


class ForgetsWhatItDid(Variant):
    breaks = "protocol_binding.an_outcome_can_be_looked_up"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if exchange.operation != "get_operation" or answer.code:
            return answer
        return answer.changed({**answer.document, "state": "unknown", "outcome": None})


class DropsTheRunId(Variant):
    breaks = "evaluation.the_run_id_is_propagated"

    async def __call__(self, exchange: Exchange) -> Answer:
        return await exchange.forward(without(exchange.document, "evaluation_run_id"))


class MistakesSpaces(OfQuery):
    breaks = "semantic_query.an_unknown_space_is_a_mismatch"

    async def __call__(self, exchange: Exchange) -> Answer:
        answer = await exchange.forward()
        if answer.code == "embedding_space_mismatch":
            return answer.changed({"items": [], "next_cursor": None}, 200)
        return answer
