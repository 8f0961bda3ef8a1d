"""embed_text, reembed and drop_vectors: what is asked of embedders and of the spaces of a scope."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pamspec_common.asked import Asked
from pamspec_common.authorization.rights import Authorizer
from pamspec_common.calls import Answer, Call
from pamspec_common.embedding_spaces import EmbeddingSpace, index_id, unknown_space
from pamspec_common.errors import AccessDenied, EmbeddingSpaceMismatch, PamspecError, told_error
from pamspec_common.peers import Peer
from pamspec_common.principal import RIGHT_SERVICE, TokenSigner, service_principal
from pamspec_common.strict_json import dumps
from pamspec_indexing.documents import DropVectors, EmbedText, Reembed
from pamspec_indexing.embedding.embedder import Embedder
from pamspec_indexing.handlers.asked import scope_of
from pamspec_indexing.queries import putting, vectors
from pamspec_indexing.store import Store

TENANT_SQL = "SELECT tenant_id, scope_id FROM core.scope WHERE scope_key = $1"


class Registrar:
    """Describes the spaces of this process's embedders to tenants, through the write service."""

    def __init__(self, store: Store, write: Peer, signer: TokenSigner) -> None:
        self._store, self._write, self._signer = store, write, signer

    async def of_scope(self, scope_key: int, space: EmbeddingSpace) -> bool:
        """Describe a space to the tenant of a scope; False where the scope is gone."""
        async with self._store.session() as conn:
            row = await conn.fetchrow(TENANT_SQL, scope_key)
        if row is None:
            return False
        await self.of_tenant(row["tenant_id"], space)
        return True

    async def of_tenant(self, tenant_id: str, space: EmbeddingSpace) -> None:
        """Describe a space to a tenant; what was described before stays as it is."""
        token = self._signer.sign(service_principal("indexing", tenant_id))
        document = {name: getattr(space, name) for name in space.__struct_fields__}
        answer = await self._write.call(Call("register_embedding_space", token, dumps(document)))
        if answer.status >= 400:
            raise told_error(answer.status, answer.body)


@dataclass(frozen=True)
class Remaking:
    """The operations, and what they stand on."""

    store: Store
    authorizer: Authorizer
    embedders: Mapping[str, Embedder]
    """By the id of their space."""
    registrar: Registrar
    wait_s: float

    async def embed_text(self, asked: Asked[EmbedText]) -> Answer:
        """The vector of a query's text, for the services; nothing of it is kept."""
        if not asked.principal.has(RIGHT_SERVICE):
            raise AccessDenied("embed_text is for the services themselves.")
        space_id = asked.request.embedding_space_id
        embedder = self.embedders.get(space_id)
        if embedder is None:
            raise _no_embedder()
        (vector,) = await embedder.embed([asked.request.text], "query", self.wait_s)
        return Answer(200, dumps({"embedding_space_id": space_id, "vector": vector.tolist()}))

    async def reembed(self, asked: Asked[Reembed]) -> Answer:
        """Embed all of a scope into a space: anew in its own, or beside that one until the new one is complete."""
        key = await scope_of(self.store, self.authorizer, asked, "administer")
        space_id = asked.request.embedding_space_id
        embedder = self.embedders.get(space_id)
        if embedder is None:
            async with self.store.scoped([key]) as conn:
                known = await vectors.fetch_space(conn, key, space_id)
            raise unknown_space() if known is None else _no_embedder()
        await self.registrar.of_scope(key, embedder.space)
        async with self.store.scoped([key]) as conn:
            state = await putting.remake(conn, key, space_id)
        return _answer(asked, space_id, state=state)

    async def drop_vectors(self, asked: Asked[DropVectors]) -> Answer:
        """Take all vectors of a space away from a scope, and embed nothing of it there any more (P19, P190)."""
        key = await scope_of(self.store, self.authorizer, asked, "administer")
        space_id = asked.request.embedding_space_id
        async with self.store.scoped([key]) as conn:
            if await vectors.fetch_space(conn, key, space_id) is None:
                raise unknown_space()
            await putting.drop(conn, key, space_id, index_id(space_id))
        return _answer(asked, space_id, state="retired")


def _answer(asked: Asked[Reembed] | Asked[DropVectors], space_id: str, *, state: str) -> Answer:
    body = {
        "operation_id": asked.operation_id,
        "scope_id": asked.request.scope_id,
        "embedding_space_id": space_id,
        "index_id": index_id(space_id),
        "state": state,
    }
    return Answer(200, dumps(body))


def _no_embedder() -> PamspecError:
    return EmbeddingSpaceMismatch(
        "Nothing here makes vectors of this space; send vectors, or name a space that the service embeds into.",
        details={"field": "embedding_space_id", "reason": "no_embedder"},
    )
