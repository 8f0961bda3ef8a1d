"""What changes objects and relationships, and what became of a change."""

from __future__ import annotations

from typing import Unpack

from pamspec_client import requests as r
from pamspec_client.models import BatchOutcome, Operation, Outcome, Promotion
from pamspec_client.operations.caller import Caller
from pamspec_client.wire import encode, join


class Objects(Caller):
    """What changes objects and relationships, and what became of a change."""

    async def create(self, **request: Unpack[r.CreateRequest]) -> Outcome:
        """Write the first version of an object (PAMSPEC P104)."""
        return await self._typed(Outcome, "create", request)

    async def update(self, **request: Unpack[r.UpdateRequest]) -> Outcome:
        """Write the next version; VersionConflict when `expected_version_id` is no longer current (PAMSPEC P112)."""
        return await self._typed(Outcome, "update", request)

    async def transition(self, **request: Unpack[r.TransitionRequest]) -> Outcome:
        """Move one state dimension of an object or a relationship (PAMSPEC P115)."""
        return await self._typed(Outcome, "transition", request)

    async def redact(self, **request: Unpack[r.RedactRequest]) -> Outcome:
        """Erase content, whole or by JSON Pointers, with every past version, or chosen past versions (PAMSPEC P136)."""
        return await self._typed(Outcome, "redact", request)

    async def delete(self, **request: Unpack[r.DeleteRequest]) -> Outcome:
        """Write the final tombstone and erase the content (PAMSPEC P142)."""
        return await self._typed(Outcome, "delete", request)

    async def relate(self, **request: Unpack[r.RelateRequest]) -> Outcome:
        """Join two objects; with `relationship_id` and `expected_version_id` change how they are joined (PAMSPEC P118).

        RelationshipConflict when an active relationship of that type joins them already.
        """
        return await self._typed(Outcome, "relate", request)

    async def promote(self, **request: Unpack[r.PromoteRequest]) -> Promotion:
        """Make an object of working memory, which it supersedes, in one commit (PAMSPEC P137)."""
        return await self._typed(Promotion, "promote", request)

    async def batch(self, **request: Unpack[r.BatchRequest]) -> BatchOutcome:
        """Several writes in one request; errors of single items are in `results`, not raised."""
        items = join([encode(item) for item in request["items"]])
        return await self._typed(BatchOutcome, "batch", {**request, "items": items})

    async def get_operation(self, **request: Unpack[r.GetOperationRequest]) -> Operation:
        """What became of a write whose answer was lost (contract K8); `unknown` is final."""
        return await self._typed(Operation, "get_operation", request)
