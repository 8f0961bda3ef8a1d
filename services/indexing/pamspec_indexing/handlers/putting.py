"""put_vectors: vectors that clients bring (PAMSPEC P26-P28, P190).

Invariant: a vector is stored for the version that is indexed and for no other, in a transaction that holds the object's
row; so a version that is erased or replaced meanwhile gets none. All of a request is stored, or nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pamspec_common.asked import Asked
from pamspec_common.authorization.rights import Authorizer, Rights
from pamspec_common.calls import Answer
from pamspec_common.embedding_spaces import check_vector, index_id, unknown_space
from pamspec_common.errors import (
    AccessDenied,
    EmbeddingSpaceMismatch,
    InvalidRequest,
    ObjectDeleted,
    ObjectNotFound,
    ServiceUnavailable,
    VersionConflict,
)
from pamspec_common.postgres import Connection
from pamspec_common.strict_json import dumps
from pamspec_indexing.documents import PutVectors, VectorsOf
from pamspec_indexing.handlers.asked import permitted
from pamspec_indexing.handlers.vectors import digest_of
from pamspec_indexing.queries import embedding, vectors
from pamspec_indexing.queries.embedding import Waiting
from pamspec_indexing.queries.putting import Canonical, canonical
from pamspec_indexing.queries.vectors import Locked, Space, Stored, literal
from pamspec_indexing.store import Store

_LOOK_S = 0.05


@dataclass(frozen=True)
class Putting:
    """The operation, and what it stands on."""

    store: Store
    authorizer: Authorizer
    wait_s: float

    async def put_vectors(self, asked: Asked[PutVectors]) -> Answer:
        """Let the vectors of some objects in a space be these."""
        request = asked.request
        space_id = request.embedding_space_id
        if space_id is None:
            raise EmbeddingSpaceMismatch(
                "A vector means nothing without its space; send embedding_space_id.",
                details={"field": "embedding_space_id", "reason": "missing"},
            )
        key, rights = await permitted(self.store, self.authorizer, asked, "update")
        wanted = {one.object_id: one for one in request.vectors}
        if len(wanted) < len(request.vectors):
            raise InvalidRequest("An object stands in vectors twice; send all of its vectors once.")
        async with self.store.scoped([key]) as conn:
            space = await vectors.fetch_space(conn, key, space_id)
            if space is None:
                raise unknown_space()
            rows = _rows(request.vectors, space)
            known = await canonical(conn, key, list(wanted))
        _check(request.vectors, known, rights)
        await self._indexed(key, wanted)
        async with self.store.scoped([key]) as conn:
            stored = await _store(conn, key, space, wanted, rows)
        body = {
            "operation_id": asked.operation_id,
            "scope_id": request.scope_id,
            "embedding_space_id": space_id,
            "index_id": index_id(space_id),
            "objects": len(wanted),
            "vectors": stored,
        }
        return Answer(200, dumps(body))

    async def _indexed(self, key: int, wanted: Mapping[str, VectorsOf]) -> None:
        """Wait until the versions are indexed; ServiceUnavailable when that takes too long."""
        ends = asyncio.get_running_loop().time() + self.wait_s
        while True:
            async with self.store.scoped([key]) as conn:
                found = await vectors.indexed(conn, key, wanted)
            if all(name in found and found[name][0] == one.version_id for name, one in wanted.items()):
                return
            async with self.store.scoped([key]) as conn:
                now = await canonical(conn, key, list(wanted))
            for one in wanted.values():
                _check_version(one, now.get(one.object_id))
            if asyncio.get_running_loop().time() >= ends:
                raise ServiceUnavailable(
                    "The version is not indexed yet; send the vectors again.", details={"reason": "not_indexed"}
                )
            await asyncio.sleep(_LOOK_S)


def _rows(of: Sequence[VectorsOf], space: Space) -> dict[str, list[str]]:
    """The checked vectors of each object, as PostgreSQL reads them."""
    found = {}
    for number, one in enumerate(of):
        if (one.vector is None) == (one.vectors is None):
            raise InvalidRequest(
                "Send vector, or vectors with one for each chunk, and an empty list to take them away.",
                details={"field": f"vectors[{number}]"},
            )
        given = [one.vector] if one.vector is not None else one.vectors or []
        for vector in given:
            check_vector(space.space, vector, f"vectors[{number}]")
        found[one.object_id] = [literal(vector) for vector in given]
    return found


def _check(of: Sequence[VectorsOf], known: Mapping[str, Canonical], rights: Rights) -> None:
    """Raise unless each is about the current version of an object that the actor may see and update."""
    for one in of:
        found = known.get(one.object_id)
        if found is None or not rights.allows("read", found.memory):
            raise ObjectNotFound(details={"object_id": one.object_id})
        _check_version(one, found)
        if not rights.allows("update", found.memory):
            raise AccessDenied(
                "You may not update this object, nor what it is found by.",
                details={"action": "update", "object_id": one.object_id},
                policy_rule_id=rights.decision("update").rule(found.memory),
            )


def _check_version(one: VectorsOf, found: Canonical | None) -> None:
    if found is None:
        raise ObjectNotFound(details={"object_id": one.object_id})
    if found.gone:
        raise ObjectDeleted(details={"object_id": one.object_id})
    if found.version_id != one.version_id:
        raise VersionConflict(
            "The object has another version by now; make its vectors anew.",
            details={
                "object_id": one.object_id,
                "expected_version_id": one.version_id,
                "current_version_id": found.version_id,
            },
        )


async def _store(
    conn: Connection, key: int, space: Space, wanted: Mapping[str, VectorsOf], rows: Mapping[str, list[str]]
) -> int:
    locked = await vectors.lock_objects(conn, key, wanted)
    for name, one in wanted.items():
        _check_locked(one, locked.get(name))
    waiting = [Waiting(key, one.doc, one.sequence, 0) for one in locked.values()]
    contents = await embedding.contents(conn, waiting)
    docs = [(key, locked[name].doc) for name in wanted if (key, locked[name].doc) in contents]
    stored = [
        Stored(key, locked[name].doc, number, vector, digest_of(contents[key, locked[name].doc]), False)
        for name in wanted
        if (key, locked[name].doc) in contents
        for number, vector in enumerate(rows[name])
    ]
    space_id = space.space.embedding_space_id
    await vectors.put(conn, space, docs, stored)
    await vectors.show_space(conn, [key], space_id, automatic=False)
    await embedding.untold(conn, space_id, [(key, locked[name].doc) for name in wanted if rows[name]])
    await vectors.move_watermarks(conn, [key])
    return len(stored)


def _check_locked(one: VectorsOf, found: Locked | None) -> None:
    if found is None or found.version_id != one.version_id or found.removed:
        raise VersionConflict(
            "The object has changed meanwhile; read it, and make its vectors anew.",
            details={"object_id": one.object_id, "expected_version_id": one.version_id},
        )
