"""Erasures: what the values were that go, for the scans, and the row that opens the receipt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pamspec_common.ids import salt
from pamspec_common.needles import READ_BYTES, NeedleSeal, needles_of
from pamspec_common.postgres import Connection
from pamspec_write.model.rows import ErasureRow, Rows

# What the newest versions of each object held, before it goes. $1-$4: per erasure the scope, the object and the
# version sequences.
VALUES_SQL = f"""
SELECT k.n::integer AS n, p.content, p.private, v.metadata
FROM unnest($1::bigint[], $2::text[], $3::integer[], $4::integer[]) WITH ORDINALITY
  AS k (scope_key, object_id, from_seq, to_seq, n)
CROSS JOIN LATERAL (
  SELECT v.scope_key, v.ledger_seq, v.metadata FROM core.version v
  WHERE v.object_id = k.object_id AND v.scope_key = k.scope_key AND v.version_seq BETWEEN k.from_seq AND k.to_seq
  ORDER BY v.version_seq DESC LIMIT 8) v
CROSS JOIN LATERAL (
  SELECT CASE WHEN p.sealed THEN p.content ELSE substring(p.content FOR {READ_BYTES}) END AS content,
    CASE WHEN p.sealed THEN p.private ELSE substring(p.private FOR {READ_BYTES}) END AS private
  FROM core.version_value p
  WHERE p.scope_key = v.scope_key AND p.ledger_seq = v.ledger_seq AND p.salt IS NOT NULL LIMIT 1) p
"""

INSERT_ERASURES_SQL = """
INSERT INTO core.erasure (scope_key, erasure_id, tenant_id, kind, subject_kind, subject_id, part_of, operation_id,
  actor_id, position, erased_from, erased_to, seal_salt, needles)
SELECT k.scope_key, k.erasure_id, k.tenant_id, k.kind::"char", k.subject_kind::"char", k.subject_id, k.part_of,
  k.operation_id, k.actor_id, k.position, k.erased_from::integer[], k.erased_to::integer[], k.seal_salt, k.needles
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
  $9::text[], $10::bigint[], $11::text[], $12::text[], $13::bytea[], $14::bytea[])
  AS k (scope_key, erasure_id, tenant_id, kind, subject_kind, subject_id, part_of, operation_id, actor_id, position,
    erased_from, erased_to, seal_salt, needles)
"""


class Values(NamedTuple):
    """What versions held, and what stays of them: their metadata."""

    contents: list[bytes]
    privates: list[bytes]
    stays: list[bytes]


async def open_erasures(conn: Connection, rows: Rows, seal: NeedleSeal) -> None:
    """Open the receipts of a batch, while the values that it erases are still there."""
    opened = rows.receipts
    named = [(index, *span) for index, row in enumerate(opened) for span in row.erased]
    places = [opened[index] for index, *_ in named]
    found: dict[int, Values] = {}
    for n, content, private, metadata in await conn.fetch(
        VALUES_SQL,
        [row.scope_key for row in places],
        [row.subject_id for row in places],
        [first for _, first, _ in named],
        [last for _, _, last in named],
    ):
        values = found.setdefault(named[n - 1][0], Values([], [], []))
        values.contents.extend([content] if content is not None else ())
        values.privates.extend([private] if private is not None else ())
        values.stays.append(metadata)
    sealed = [_sealed(row, found.get(index), seal) for index, row in enumerate(opened)]
    await conn.execute(INSERT_ERASURES_SQL, *_columns(opened), *map(list, zip(*sealed, strict=True)))


def _sealed(row: ErasureRow, values: Values | None, seal: NeedleSeal) -> tuple[bytes | None, bytes | None]:
    """The salt and what is sealed under it; nothing where nothing is to be looked for."""
    if values is None:
        return None, None
    key = salt()
    needles = seal.seal(needles_of(values.contents, values.privates, b"\n".join((row.kept, *values.stays))), key)
    return (None, None) if needles is None else (key, needles)


def _columns(opened: Sequence[ErasureRow]) -> list[list[object]]:
    return [
        [row.scope_key for row in opened],
        [row.erasure_id for row in opened],
        [row.tenant_id for row in opened],
        [row.kind for row in opened],
        [row.subject_kind for row in opened],
        [row.subject_id for row in opened],
        [row.part_of for row in opened],
        [row.operation_id for row in opened],
        [row.actor_id for row in opened],
        [row.position for row in opened],
        ["{" + ",".join(str(first) for first, _ in row.erased) + "}" for row in opened],
        ["{" + ",".join(str(last) for _, last in row.erased) + "}" for row in opened],
    ]
