"""What is derived from a scope to find its memory."""

from __future__ import annotations

from typing import Unpack

from pamspec_client import requests as r
from pamspec_client.models import IndexJobStarted, IndexList, SpaceMoved, SpacePage, SpaceRegistered, VectorsPut
from pamspec_client.operations.caller import Caller


class Indexes(Caller):
    """What is derived from a scope to find its memory."""

    async def list_indexes(self, **request: Unpack[r.ListIndexesRequest]) -> IndexList:
        """The derived indexes of a scope, and how far behind its ledger each is."""
        return await self._typed(IndexList, "list_indexes", request)

    async def rebuild_index(self, **request: Unpack[r.IndexRequest]) -> IndexJobStarted:
        """Write an index of a scope anew while queries go on (PAMSPEC P193)."""
        return await self._typed(IndexJobStarted, "rebuild_index", request)

    async def drop_index(self, **request: Unpack[r.IndexRequest]) -> IndexJobStarted:
        """Remove an index of a scope until it is rebuilt; the memory itself stays (PAMSPEC P19)."""
        return await self._typed(IndexJobStarted, "drop_index", request)

    async def verify_index(self, **request: Unpack[r.IndexRequest]) -> IndexJobStarted:
        """Compare an index of a scope with the canonical store; nothing is changed."""
        return await self._typed(IndexJobStarted, "verify_index", request)

    async def register_embedding_space(self, **request: Unpack[r.RegisterSpaceRequest]) -> SpaceRegistered:
        """Describe an embedding space, for good (PAMSPEC P30)."""
        return await self._typed(SpaceRegistered, "register_embedding_space", request)

    async def list_embedding_spaces(self, **request: Unpack[r.ListSpacesRequest]) -> SpacePage:
        """One page of the tenant's embedding spaces, or one by its id."""
        return await self._typed(SpacePage, "list_embedding_spaces", request)

    async def put_vectors(self, **request: Unpack[r.PutVectorsRequest]) -> VectorsPut:
        """Store vectors of current versions; EmbeddingSpaceMismatch for those that are none of their space (P27)."""
        return await self._typed(VectorsPut, "put_vectors", request)

    async def reembed(self, **request: Unpack[r.SpaceOfScopeRequest]) -> SpaceMoved:
        """Embed a scope into a space beside the current one, which is let go once the new one is complete."""
        return await self._typed(SpaceMoved, "reembed", request)

    async def drop_vectors(self, **request: Unpack[r.SpaceOfScopeRequest]) -> SpaceMoved:
        """Remove a scope's vectors of a space; the memory itself stays (PAMSPEC P19)."""
        return await self._typed(SpaceMoved, "drop_vectors", request)
