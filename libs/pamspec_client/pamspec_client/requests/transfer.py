"""What an export and an import take."""

from __future__ import annotations

from typing import Literal, Required, TypedDict

from pamspec_client.requests.common import Common, Writing


class ExportRequest(Common, total=False):
    """A scope as one file."""

    scope_id: Required[str]
    embeddings: Literal["none", "reference", "include"]
    min_sequence: int


class Remap(TypedDict):
    """Where a file goes instead of a scope of its own name."""

    scope_id: str


class ImportRequest(Writing, total=False):
    """A file into a new or empty scope."""

    scope_id: str
    remap: Remap
    on_conflict: Literal["refuse", "skip"]
