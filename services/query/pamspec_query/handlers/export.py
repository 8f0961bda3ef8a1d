"""export: a scope as lines of JSON, streamed a page at a time (PAMSPEC P15, P58, P78).

Invariant: no connection is held while a line waits for the client, however long it waits; at most one page more is read
meanwhile. Entries and versions never change, so that pages of different moments belong together; only an erasure takes
something away. Where a page lacks what an entry beyond the position erased, the export goes on up to that entry: its
file explains every gap that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

import msgspec

from pamspec_common.embedding_spaces import NAMES
from pamspec_common.errors import ScopeNotFound
from pamspec_common.instants import wire
from pamspec_common.ledger import genesis
from pamspec_common.postgres import Connection
from pamspec_common.transfer import (
    EmbeddingsTold,
    EntryLine,
    OperationPart,
    ScopeLine,
    SourcePart,
    SpaceCount,
    Tally,
    VersionPart,
    Watermark,
    encode_line,
    hexadecimal,
    manifest_line,
    raw_or_unset,
)
from pamspec_common.verification.erasures import explained_at
from pamspec_common.verification.pages import erasures
from pamspec_common.verification.rows import ErasedVersion
from pamspec_query.documents import Export
from pamspec_query.handlers.context import Context, refuse_grant
from pamspec_query.handlers.export_rules import rule_lines
from pamspec_query.model.positions import headers
from pamspec_query.queries.export import EntryRow, ScopeRow, export_page, export_scope
from pamspec_query.queries.heads import now, scope_head
from pamspec_query.queries.spaces import counts

PAGE_ROWS = 500
PAGE_BYTES = 1024 * 1024


class Exporting:
    """One export under way."""

    def __init__(
        self, context: Context, request: Export, scope_key: int, scope: ScopeRow, at: str, embeddings: EmbeddingsTold
    ) -> None:
        self._context, self._request, self._scope_key, self._scope, self._at = context, request, scope_key, scope, at
        self._embeddings = embeddings
        self._until = scope.last_seq
        self._tally = Tally(genesis(scope.ledger_id))

    @property
    def headers(self) -> dict[str, str]:
        """The position that the export set out for."""
        return headers(self._scope.last_seq, self._scope.ledger_epoch)

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """The whole export, some lines at a time."""
        yield self._manifest()
        scope = encode_line(
            ScopeLine(
                document=msgspec.Raw(self._scope.document),
                ledger_id=self._scope.ledger_id.hex(),
                ledger_epoch=self._scope.ledger_epoch,
            )
        )
        self._tally.add(scope)
        yield scope
        async with aclosing(self._pages()) as pages:
            async for rows in pages:
                lines = b"".join([self._line(row) for row in rows])
                self._tally.add(lines)
                yield lines
        async for lines in rule_lines(self._reading, self._scope_key, self._tally.sequence):
            self._tally.add(lines)
            yield lines
        yield encode_line(self._tally.end())

    def _manifest(self) -> bytes:
        watermark = Watermark(self._scope.ledger_epoch, self._scope.last_seq)
        return manifest_line(self._request.scope_id, watermark, self._at, self._context.actor_id, self._embeddings)

    async def _pages(self) -> AsyncGenerator[Sequence[EntryRow], None]:
        """All entries in order; a page is read while the lines of the one before it are made and sent."""
        rows = await self._page(0) if self._until else ()
        while rows:
            after = rows[-1].sequence
            following = asyncio.create_task(self._page(after)) if after < self._until else None
            try:
                yield rows
                rows = () if following is None else await following
            finally:
                if following is not None:
                    following.cancel()

    async def _page(self, after: int) -> Sequence[EntryRow]:
        """The next entries, on the rights that hold at this moment."""
        async with self._reading() as conn:
            rows = await self._read_page(conn, after)
        if not rows:
            raise RuntimeError(f"the ledger of scope {self._scope_key} ends after {after}")
        return rows

    async def _read_page(self, conn: Connection, after: int) -> Sequence[EntryRow]:
        rows = await export_page(conn, self._scope_key, after, self._until, PAGE_ROWS, PAGE_BYTES)
        missing = [version for row in rows if (version := _erased(row)) is not None]
        if missing:
            events = await erasures(conn, self._scope_key, missing)
            self._until = max(self._until, explained_at(missing, events))
        return rows

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Connection]:
        """A moment for a page of something, on the rights that hold then."""
        async with self._context.store.snapshot(self._scope_key, tenant_id=self._context.principal.tenant_id) as conn:
            head = await scope_head(conn, self._scope_key)
            if head is None or head.ledger_epoch != self._scope.ledger_epoch:
                raise ScopeNotFound("The ledger was restored meanwhile; start the export again.")
            await self._context.rights(self._scope_key, head, conn)
            yield conn

    def _line(self, row: EntryRow) -> bytes:
        version = operation = None
        if row.metadata is not None and row.operation_hash is not None:
            version = VersionPart(
                operation_hash=row.operation_hash.hex(),
                salt=hexadecimal(row.salt),
                metadata=msgspec.Raw(row.metadata),
                private=raw_or_unset(row.private),
                content=raw_or_unset(row.content),
            )
            operation = _operation(row)
        source = operation is not None and operation.source_event is not None
        self._tally.count(
            row.sequence, row.entry_hash, version=version is not None, operation=operation is not None, source=source
        )
        entry = EntryLine(
            entry_hash=row.entry_hash.hex(), event=msgspec.Raw(row.event), version=version, operation=operation
        )
        return encode_line(entry)


async def export(context: Context, request: Export) -> Exporting:
    """An export that can begin: the scope is there, the floor is reached and the rights are given."""
    refuse_grant(request)
    async with context.moment(request) as (conn, scope_key, _, _):
        scope = await export_scope(conn, scope_key)
        at = wire(await now(conn))
        embeddings = await _told(conn, request, scope_key)
    if scope is None:
        raise ScopeNotFound
    return Exporting(context, request, scope_key, scope, at, embeddings)


async def _told(conn: Connection, request: Export, scope_key: int) -> EmbeddingsTold:
    """What the manifest says of vectors: their spaces where they are asked for, as they are at this moment (P78)."""
    if request.embeddings == "none":
        return EmbeddingsTold("none", included=False, spaces=[])
    found = await counts(conn, scope_key)
    spaces = [{name: getattr(space, name) for name in NAMES} for space, _, _ in found]
    told = [SpaceCount(space.embedding_space_id, objects, vectors) for space, objects, vectors in found]
    return EmbeddingsTold(request.embeddings, included=False, spaces=spaces, counts=told)


def _operation(row: EntryRow) -> OperationPart | None:
    """What is remembered of the operation that the version answers, so that a repetition is told apart (K6, K7)."""
    if row.operation is None:
        return None
    assert row.operation_id is not None
    assert row.actor_id is not None
    assert row.created_at is not None
    source = None
    if row.source_hash is not None:
        source = SourcePart(row.source_hash.hex(), hexadecimal(row.source_salt), hexadecimal(row.source_fingerprint))
    return OperationPart(
        operation=row.operation,
        operation_id=row.operation_id,
        actor_id=row.actor_id,
        status=201 if row.status == 201 else 200,
        last_sequence=row.sequence if row.last_seq is None else row.last_seq,
        created_at=wire(row.created_at),
        key_hash=hexadecimal(row.key_hash),
        salt=hexadecimal(row.record_salt),
        fingerprint=hexadecimal(row.fingerprint),
        answer=raw_or_unset(row.answer),
        source_event=source,
    )


def _erased(row: EntryRow) -> ErasedVersion | None:
    """A version that lacks a part of which its metadata keep a digest."""
    if row.metadata is None or row.object_id is None or row.version_seq is None:
        return None
    if row.private is not None and (row.content is not None or b'"content_digest":' not in row.metadata):
        return None
    return ErasedVersion(row.sequence, row.object_id, row.version_seq, "")
