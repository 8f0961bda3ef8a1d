"""The bytes of a page, members in the order of their names, so that equal answers have equal bytes (S17)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pamspec_common.envelope import envelope_bytes, project
from pamspec_common.strict_json import dumps
from pamspec_query.model.states import HINT
from pamspec_query.queries.heads import Stored
from pamspec_query.queries.search import Count


def shown(fields: list[str] | None, stored: Stored, beside: Mapping[str, bytes]) -> bytes:
    """One item: the version, or what is projected of it, and what stands beside it."""
    if fields is None:
        members = {**beside, "envelope": envelope_bytes(stored.metadata, stored.content, stored.private)}
    else:
        members = {**beside, "projection": project(stored.metadata, stored.content, stored.private, fields)}
    return b"{" + b",".join(b'"' + name.encode() + b'":' + members[name] for name in sorted(members)) + b"}"


def page_body(
    items: Sequence[bytes], next_cursor: str | None, hint: bool, counted: Count | None, index: bytes | None = None
) -> bytes:
    """A page of items."""
    number = b"" if counted is None else b'"count":' + dumps({"exact": counted.exact, "value": counted.value}) + b","
    told = b'"hint":' + dumps(HINT) + b"," if hint else b""
    behind = b"" if index is None else b'"index":' + index + b","
    listed = b'"items":[' + b",".join(items) + b'],"next_cursor":' + dumps(next_cursor)
    return b"{" + number + told + behind + listed + b"}"
