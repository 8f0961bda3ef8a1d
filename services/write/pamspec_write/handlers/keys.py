"""API keys over the doors: made, listed, replaced with overlap, and ended.

Invariants: the text of a key is in the answer that makes it and nowhere else, at rest there is its keyed hash; an
operator's key comes from an operator alone; a change, the epochs that gateways and services compare, and the record of
who made it are one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import asyncpg

from pamspec_common.calls import Answer
from pamspec_common.errors import AccessDenied, DuplicateOperation, InvalidRequest, ObjectNotFound, ServiceUnavailable
from pamspec_common.ids import is_id, mint
from pamspec_common.instants import wire
from pamspec_common.keys import key_hash, new_key
from pamspec_common.postgres import Connection
from pamspec_common.principal import RIGHT_OPERATOR
from pamspec_write.documents.keys import CreateKey, ListKeys, RevokeKey, RotateKey
from pamspec_write.handlers.administering import Asked, no_cursor, page_of, record
from pamspec_write.queries import keys as queries
from pamspec_write.queries.administration import raise_epoch


class Keys:
    """The handlers of keys, with the pepper under which gateways find them; None where it was not given."""

    def __init__(self, pepper: bytes | None) -> None:
        self._pepper = pepper

    async def create(self, conn: Connection, asked: Asked, request: CreateKey) -> Answer:
        """A new key of the tenant."""
        if "operator" in request.rights:
            _only_operators(asked)
        await raise_epoch(conn, asked.place)
        text, hashed = self._new()
        new = queries.NewKey(
            mint("key"),
            asked.tenant_id,
            hashed,
            request.actor_id,
            request.actor_kind,
            sorted(set(request.roles)),
            sorted(set(request.rights)),
            request.expires_at,
            asked.actor.actor_id,
            f"{asked.principal.actor_id} {request.idempotency_key or asked.operation_id}",
        )
        made = await queries.insert_key(conn, new)
        if made is None:
            raise DuplicateOperation(
                "This request has made a key before, whose text cannot be shown again: revoke that one, make another.",
                details={"key_id": await queries.key_of_request(conn, asked.tenant_id, new.request_key)},
            )
        _in_future(made)
        await record(conn, asked, request.policy_basis, request.actor_id, new.key_id)
        return asked.answer(key=_shown(made), secret=text)

    async def list(self, conn: Connection, asked: Asked, request: ListKeys) -> Answer:
        """A page of keys."""
        limit, cursor = page_of(request.pagination)
        if cursor is not None and not is_id(cursor):
            raise no_cursor()
        rows = await conn.fetch(
            queries.KEYS_SQL, asked.tenant_id, request.actor_id, cursor or "", request.include_ended, limit + 1
        )
        found = [_shown(row) for row in rows[:limit]]
        return asked.answer(keys=found, next_cursor=found[-1]["key_id"] if len(rows) > limit else None)

    async def rotate(self, conn: Connection, asked: Asked, request: RotateKey) -> Answer:
        """A key like another one, which ends after the overlap; each is replaced once."""
        await raise_epoch(conn, asked.place)
        old = await _known(conn, asked, request.key_id)
        if "operator" in old["rights"]:
            _only_operators(asked)
        if old["state"] != "valid":
            raise InvalidRequest("That key has ended; create another one.", details={"reason": "key_ended"})
        if old["replaced_by"] is not None:
            raise InvalidRequest(
                "That key was replaced before; rotate or revoke the key that took its place.",
                details={"reason": "key_replaced", "replaced_by": old["replaced_by"]},
            )
        text, hashed = self._new()
        new, by = (mint("key"), hashed), asked.actor.actor_id
        made, ended = await queries.replace_key(
            conn, request.key_id, new, by, request.old_expires_at, request.expires_at
        )
        _in_future(made)
        await record(conn, asked, request.policy_basis, old["actor_id"], f"{request.key_id} {new[0]}")
        return asked.answer(key=_shown(made), secret=text, replaced=_shown(ended))

    async def revoke(self, conn: Connection, asked: Asked, request: RevokeKey) -> Answer:
        """The end of a key; what has ended already stays so and is no change."""
        await raise_epoch(conn, asked.place)
        known = await _known(conn, asked, request.key_id)
        if known["state"] == "revoked":
            return asked.answer(key=_shown(known), changed=False)
        ended = await queries.revoke_key(conn, request.key_id)
        await record(conn, asked, request.policy_basis, known["actor_id"], request.key_id)
        return asked.answer(key=_shown(ended), changed=known["state"] == "valid")

    def _new(self) -> tuple[str, bytes]:
        """The text of a new key, and the hash under which gateways find it."""
        if self._pepper is None:
            raise ServiceUnavailable(
                "This deployment makes no keys over its doors: PAMSPEC_KEY_PEPPER of the gateways is not set for the "
                "write service."
            )
        text = new_key()
        return text, key_hash(self._pepper, text)


async def _known(conn: Connection, asked: Asked, key_id: str) -> asyncpg.Record:
    found = await queries.lock_key(conn, asked.tenant_id, key_id)
    if found is None:
        raise ObjectNotFound("The tenant has no such key; list its keys.", details={"field": "key_id"})
    return found


def _only_operators(asked: Asked) -> None:
    if not asked.principal.has(RIGHT_OPERATOR):
        raise AccessDenied("Only an operator's key makes operators' keys.", details={"field": "rights"})


def _in_future(made: asyncpg.Record) -> None:
    if made["state"] == "expired":
        raise InvalidRequest(
            "The new key would have ended already; name a later time.", details={"field": "expires_at"}
        )


def _shown(row: asyncpg.Record) -> dict[str, Any]:
    """A key as it is answered: what is not known of it is left out."""
    values: Mapping[str, Any] = dict(row)
    return {
        name: wire(value) if isinstance(value, datetime) else value
        for name, value in values.items()
        if value is not None
    }
