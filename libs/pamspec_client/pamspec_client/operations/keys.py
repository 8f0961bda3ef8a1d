"""API keys, for who administers a tenant."""

from __future__ import annotations

from typing import Unpack

from pamspec_client import requests as r
from pamspec_client.models import KeyMade, KeyPage, KeyRevoked
from pamspec_client.operations.caller import Caller


class Keys(Caller):
    """API keys, for who administers a tenant."""

    async def create_key(self, **request: Unpack[r.CreateKeyRequest]) -> KeyMade:
        """Make a key; its text is in this answer and nowhere else."""
        return await self._typed(KeyMade, "create_key", request)

    async def list_keys(self, **request: Unpack[r.ListKeysRequest]) -> KeyPage:
        """One page of a tenant's keys, without those that have ended unless asked for."""
        return await self._typed(KeyPage, "list_keys", request)

    async def rotate_key(self, **request: Unpack[r.RotateKeyRequest]) -> KeyMade:
        """Make a key in place of another; both are good until `old_expires_at`, a day from now where it is left out."""
        return await self._typed(KeyMade, "rotate_key", request)

    async def revoke_key(self, **request: Unpack[r.RevokeKeyRequest]) -> KeyRevoked:
        """End a key now: requests, channels and connections to the bus with it end within moments."""
        return await self._typed(KeyRevoked, "revoke_key", request)
