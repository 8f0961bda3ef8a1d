"""What an import answers."""

from __future__ import annotations

from pamspec_client.models.document import Document


class RemappedFrom(Document, kw_only=True):
    """Where a file came from that was imported under another name."""

    scope_id: str
    ledger_id: str


class Imported(Document, kw_only=True):
    """The answer to an import."""

    operation_id: str
    scope_id: str
    imported: bool
    """False where the scope held something else and was to be left as it is."""
    entries: int
    versions: int
    operations: int
    source_events: int
    head_hash: str
    digest: str
    remapped_from: RemappedFrom | None = None

    @property
    def replayed(self) -> bool:
        """Whether the scope held the file already."""
        return bool(self.__dict__.get("replayed", False))
