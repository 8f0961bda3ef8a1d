"""The request of an import: members of a document that travel in the query of the URL, beside the file."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import parse_qsl

import msgspec

from pamspec_common import strict_json
from pamspec_common.documents import CommonFields
from pamspec_common.errors import InvalidRequest
from pamspec_common.ids import Id
from pamspec_write.documents.parts import MaybeRaw

_NUMBERS = frozenset({"min_sequence", "wait_ms", "ledger_epoch"})
_MAX_DIGITS = 19


class Remap(msgspec.Struct, forbid_unknown_fields=True):
    """Where an export goes instead of a scope of its own name."""

    scope_id: Id


class Import(CommonFields, kw_only=True):
    """import."""

    scope_id: Id | None = None
    actor: MaybeRaw = msgspec.UNSET
    remap: Remap | None = None
    on_conflict: Literal["refuse", "skip"] = "refuse"


def from_query(query: bytes) -> dict[str, Any]:
    """The request document that a query string stands for; InvalidRequest when a member stands there twice."""
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=None):
        if name in found:
            raise InvalidRequest(f"{name[:64]!r} stands twice in the query; send it once.")
        if name in _NUMBERS and value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS:
            found[name] = int(value)
        elif name == "remap":
            found[name] = {"scope_id": value}
        elif name == "actor":
            found[name] = strict_json.parse(value.encode("latin-1", "replace"))
        else:
            found[name] = value
    return found
