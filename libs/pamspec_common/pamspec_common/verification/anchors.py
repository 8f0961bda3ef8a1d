"""Anchors of a ledger as a verification takes them: signed checkpoints from outside PostgreSQL. Pure.

An anchor that is missing, or whose place can't be reached, proves nothing and is reported as just that. One that is
there must be signed, belong to this very ledger, and say what the ledger was at its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pamspec_common.checkpoints import Checkpoint, hash_text, is_signed, read

Place = Literal["bucket", "files"]
Status = Literal["ok", "missing", "unreachable", "unknown_key", "not_reached", "forged", "foreign", "beyond", "differs"]


@dataclass(slots=True)
class Anchor:
    """What one place holds of a ledger. `not_reached` becomes the result of the comparison."""

    place: Place
    status: Status
    checkpoint: Checkpoint | None = None

    @classmethod
    def of(cls, place: Place, document: bytes | Checkpoint | None, public_keys: Mapping[str, bytes]) -> Anchor:
        """From what a place holds; None: nothing."""
        if document is None:
            return cls(place, "missing")
        try:
            checkpoint = document if isinstance(document, Checkpoint) else read(document)
        except ValueError:
            return cls(place, "forged")
        signed = is_signed(checkpoint, public_keys)
        if signed and not checkpoint.size:
            # A ledger that an operator gave up for lost: nothing is anchored there any more.
            return cls(place, "missing")
        return cls(place, "unknown_key" if signed is None else "not_reached" if signed else "forged", checkpoint)

    @property
    def size(self) -> int:
        """How many entries were signed; 1 where that can't be told."""
        return self.checkpoint.size if self.checkpoint is not None else 1

    def document(self) -> dict[str, Any]:
        """The anchor as it is answered."""
        found: dict[str, Any] = {"place": self.place, "status": self.status}
        if self.checkpoint is not None and self.status != "forged":
            checkpoint = self.checkpoint
            found |= {
                "size": checkpoint.size,
                "ledger_epoch": checkpoint.ledger_epoch,
                "made_at": checkpoint.made_at,
                "key_id": checkpoint.key_id,
            }
        return found

    def compare(self, head_hash: bytes, root: bytes) -> str | None:
        """What is wrong when the ledger has these at the anchor's size."""
        assert self.checkpoint is not None
        if (self.checkpoint.head_hash, self.checkpoint.root) == (hash_text(head_hash), hash_text(root)):
            self.status = "ok"
            return None
        self.status = "differs"
        return f"The first {self.size} entries are not those that were signed at {self.checkpoint.made_at}."

    def beyond(self, last_seq: int) -> str:
        """What is wrong when the ledger ends before the anchor's size."""
        assert self.checkpoint is not None
        self.status = "beyond"
        return (
            f"The ledger ends at {last_seq}, but {self.size} entries were signed at {self.checkpoint.made_at}: "
            "it was cut or rolled back."
        )


def foreign(anchors: Iterable[Anchor], scope_id: str, ledger_id: bytes, ledger_epoch: int) -> list[tuple[Anchor, str]]:
    """The anchors that can't be this ledger's, with what is wrong."""
    found = []
    for anchor in anchors:
        checkpoint = anchor.checkpoint
        if anchor.status == "forged":
            found.append((anchor, "The checkpoint is not signed by the key that it names."))
        elif anchor.status == "not_reached" and checkpoint is not None:
            if (checkpoint.scope_id, checkpoint.ledger_id) != (scope_id, ledger_id.hex()):
                anchor.status = "foreign"
                found.append((anchor, "The checkpoint was signed for another ledger."))
            elif checkpoint.ledger_epoch > ledger_epoch:
                anchor.status = "beyond"
                text = f"Epoch {checkpoint.ledger_epoch} was signed, the ledger is in epoch {ledger_epoch}."
                found.append((anchor, text))
    return found
