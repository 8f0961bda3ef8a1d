"""What the verification of a ledger takes."""

from __future__ import annotations

from typing import Required

from pamspec_client.requests.common import Reading


class LedgerRequest(Reading, total=False):
    """The ledger of one scope."""

    scope_id: Required[str]


class ProofRequest(Reading, total=False):
    """What is to be proved: that an entry is in the ledger, that an earlier checkpoint's is its beginning, or both."""

    scope_id: Required[str]
    sequence: int
    from_size: int
    """The size of the earlier checkpoint."""
