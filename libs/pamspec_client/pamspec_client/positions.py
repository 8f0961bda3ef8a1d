"""What a session has seen: the highest ledger sequence of each scope.

Invariant: within one ledger epoch it only grows, so a read that sends it as min_sequence never goes back behind an
own write or an earlier read (contracts K1, K4). A new epoch starts afresh.
"""

from __future__ import annotations

from pamspec_client.transport import Reply

LEDGER_SEQUENCE = "Pamspec-Ledger-Sequence"
AS_OF_SEQUENCE = "Pamspec-As-Of-Sequence"
LEDGER_EPOCH = "Pamspec-Ledger-Epoch"
REPLAYED = "Idempotency-Replayed"


class Positions:
    """The positions that this client has seen, by scope."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}

    def note(self, scope_id: str, reply: Reply) -> None:
        """Remember the positions in the headers of an answer about a scope."""
        found = [reply.number(name) for name in (LEDGER_SEQUENCE, AS_OF_SEQUENCE)]
        sequences = [sequence for sequence in found if sequence is not None]
        if sequences:
            epoch = reply.number(LEDGER_EPOCH) or 1
            self._seen[scope_id] = max(self._seen.get(scope_id, (0, 0)), (epoch, max(sequences)))

    def floor(self, scope_id: str) -> tuple[int, int] | None:
        """(ledger_epoch, sequence) below which no answer may be, or None before the first answer."""
        return self._seen.get(scope_id)

    def forget(self, scope_id: str) -> None:
        """What was seen of a scope counts no longer."""
        self._seen.pop(scope_id, None)
