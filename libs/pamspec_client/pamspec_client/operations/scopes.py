"""Scopes: their policies, holds, schemas and ledgers, and what is erased in them."""

from __future__ import annotations

from typing import Any, Unpack

from pamspec_client import requests as r
from pamspec_client.models import (
    Erasure,
    ErasurePage,
    Forgotten,
    HoldPage,
    HoldPlaced,
    PolicyPage,
    PolicySet,
    ReadsAnswer,
    RegisteredSchema,
    SchemaPage,
    SchemaRegistered,
    ScopeAnswer,
    ScopeDocument,
    ScopePage,
)
from pamspec_client.operations.caller import Caller
from pamspec_client.proofs import CheckpointAnswer, Proof, VerifiedLedger


class Scopes(Caller):
    """Scopes: their policies, holds, schemas and ledgers, and what is erased in them."""

    async def create_scope(self, **request: Unpack[r.CreateScopeRequest]) -> ScopeDocument:
        """Make a scope; the same document again answers the same."""
        return _scope(await self._typed(ScopeAnswer, "create_scope", request))

    async def get_scope(self, **request: Unpack[r.GetScopeRequest]) -> ScopeDocument:
        """One scope; ScopeNotFound when the actor can't see it."""
        return _scope(await self._typed(ScopeAnswer, "get_scope", request))

    async def list_scopes(self, **request: Unpack[r.PageRequest]) -> ScopePage:
        """One page of the scopes that the actor can see."""
        return await self._typed(ScopePage, "list_scopes", request)

    async def update_scope(self, **request: Unpack[r.UpdateScopeRequest]) -> PolicySet:
        """Replace a scope's policy; VersionConflict when `expected_policy_version` is no longer current."""
        return await self._typed(PolicySet, "update_scope", request)

    async def list_policy_versions(self, **request: Unpack[r.ScopedPageRequest]) -> PolicyPage:
        """One page of the policies that a scope has had, the newest first."""
        return await self._typed(PolicyPage, "list_policy_versions", request)

    async def place_hold(self, **request: Unpack[r.PlaceHoldRequest]) -> HoldPlaced:
        """Put a scope, or a type of it, under legal hold: from now on nothing of it can be removed."""
        return await self._typed(HoldPlaced, "place_hold", request)

    async def release_hold(self, **request: Unpack[r.ReleaseHoldRequest]) -> HoldPlaced:
        """End a legal hold; its objects go back to their retention before, one by one."""
        return await self._typed(HoldPlaced, "release_hold", request)

    async def list_reads(self, **request: Unpack[r.ListReadsRequest]) -> ReadsAnswer:
        """How often objects were read by their ids, in a scope of which a retention rule asks for it."""
        return await self._typed(ReadsAnswer, "list_reads", request)

    async def list_holds(self, **request: Unpack[r.ListHoldsRequest]) -> HoldPage:
        """One page of a scope's legal holds, the oldest first."""
        return await self._typed(HoldPage, "list_holds", request)

    async def list_erasures(self, **request: Unpack[r.ListErasuresRequest]) -> ErasurePage:
        """One page of a scope's receipts of erasures, the newest first, or one by its id."""
        return await self._typed(ErasurePage, "list_erasures", request)

    async def get_erasure(self, erasure_id: str) -> Erasure:
        """One receipt; ObjectNotFound when there is none."""
        page = await self.list_erasures(erasure_id=erasure_id)
        return page.erasures[0]

    async def forget(self, **request: Unpack[r.ForgetRequest]) -> Forgotten:
        """What concerns a subject; with the token of that preview, its erasure begins."""
        return await self._typed(Forgotten, "forget", request)

    async def register_schema(self, **request: Unpack[r.RegisterSchemaRequest]) -> SchemaRegistered:
        """Register a JSON Schema that content with this schema_id has to keep; for good."""
        return await self._typed(SchemaRegistered, "register_schema", request)

    async def get_schema(self, **request: Unpack[r.GetSchemaRequest]) -> RegisteredSchema:
        """A registered schema with its document."""
        return await self._typed(RegisteredSchema, "get_schema", request)

    async def list_schemas(self, **request: Unpack[r.ScopedPageRequest]) -> SchemaPage:
        """One page of a scope's registered schemas, without their documents."""
        return await self._typed(SchemaPage, "list_schemas", request)

    async def get_checkpoint(self, **request: Unpack[r.LedgerRequest]) -> CheckpointAnswer:
        """The newest signed checkpoint of a scope's ledger."""
        return await self._typed(CheckpointAnswer, "get_checkpoint", request)

    async def prove_ledger(self, **request: Unpack[r.ProofRequest]) -> Proof:
        """Proofs that an entry, or an earlier checkpoint, is part of the signed ledger; check them with `Proof`."""
        fields: dict[str, Any] = {**request}
        fields["from"] = fields.pop("from_size", None)
        return await self._typed(Proof, "prove_ledger", fields)

    async def verify_ledger(self, **request: Unpack[r.LedgerRequest]) -> VerifiedLedger:
        """Have the service read a scope's whole ledger and check it."""
        return await self._typed(VerifiedLedger, "verify_ledger", request)


def _scope(answer: ScopeAnswer) -> ScopeDocument:
    scope = ScopeDocument.of(answer.scope_raw)
    scope.policy_version = answer.policy_version
    scope.__dict__["replayed"] = answer.__dict__.get("replayed", False)
    return scope
