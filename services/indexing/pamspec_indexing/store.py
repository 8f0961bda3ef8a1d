"""The service's door to PostgreSQL."""

from __future__ import annotations

from pamspec_common import store


class Store(store.Store):
    """Connections of one process."""

    name = "indexing"
