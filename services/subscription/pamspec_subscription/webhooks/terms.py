"""How webhooks are delivered, as the operator has set it."""

from __future__ import annotations

from dataclasses import dataclass

from pamspec_subscription.webhooks.attempts import Patience
from pamspec_subscription.webhooks.secrets import Sealing
from pamspec_subscription.webhooks.targets import Targets


@dataclass(frozen=True)
class Terms:
    """What every endpoint meets."""

    targets: Targets
    sealing: Sealing
    patience: Patience
    places: int
    """Endpoints that one process delivers to at once; 0: none."""
    body_bytes: int
    log_rows: int
