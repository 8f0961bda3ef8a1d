"""Erasures that came after the backup are done again, by the write service, before anybody reads what they erased."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from pamspec_cli.restoring import queries
from pamspec_cli.restoring.model import command
from pamspec_cli.restoring.queries import Connection, Scope
from pamspec_common.calls import Call
from pamspec_common.erasure_log import Erased, LogEntry
from pamspec_common.peers import Peer
from pamspec_common.principal import TokenSigner, service_principal
from pamspec_common.strict_json import dumps

_BATCH = 100
_PART = 1000
"""So many entries of the log are looked at together."""
_GONE = frozenset({"object_not_found", "object_deleted", "object_redacted"})


@dataclass
class Replayed:
    """What came of it."""

    erased: int = 0
    """Objects and relationships that were erased again."""
    scopes: int = 0
    """Scopes that were deleted again."""
    nothing_left: int = 0
    """Erasures of what the restored store does not have, or has without its values."""
    refused: dict[str, int] = field(default_factory=dict)
    """By the error's code, what has still to be erased."""

    def refuse(self, code: str) -> None:
        """One was refused."""
        self.refused[code] = self.refused.get(code, 0) + 1


@dataclass(frozen=True)
class Replay:
    """Over one restored store and a write service upon it."""

    connection: Connection
    write: Peer
    signer: TokenSigner
    epoch: int

    async def run(self, log: AsyncIterator[LogEntry], scopes: Sequence[Scope]) -> Replayed:
        """Do again what the store does not know of; what is refused is left for the next run.

        Memory is bounded however long the log is: some of it is done before more is read.
        """
        done = Replayed()
        here = {scope.ledger_id.hex(): scope for scope in scopes if not scope.deleted}
        part: list[LogEntry] = []
        async for entry in log:
            part.append(entry)
            if len(part) == _PART:
                await self._part(part, here, done)
                part.clear()
        await self._part(part, here, done)
        return done

    async def _part(self, log: Sequence[LogEntry], here: dict[str, Scope], done: Replayed) -> None:
        """Some of the log; scopes that it deletes are not `here` any more."""
        of: dict[str, dict[str, Erased]] = defaultdict(dict)
        for entry in log:
            scope = here.get(entry.ledger_id)
            if scope is None:
                done.nothing_left += len(entry.erasures)
            elif entry.scope_deleted_at is not None:
                if await self._delete_scope(scope, done):
                    del here[entry.ledger_id]
                    of.pop(entry.ledger_id, None)
            else:
                of[entry.ledger_id].update({one.erasure_id: one for one in entry.erasures})
        for ledger_id, erasures in of.items():
            await self._scope(here[ledger_id], erasures, done)

    async def _scope(self, scope: Scope, erasures: Mapping[str, Erased], done: Replayed) -> None:
        known = await queries.known(self.connection, erasures)
        by_subject: dict[str, list[Erased]] = defaultdict(list)
        for erasure_id, one in erasures.items():
            if erasure_id not in known:
                by_subject[one.object_id or one.relationship_id or ""].append(one)
        names = sorted(by_subject)
        for at in range(0, len(names), _BATCH):
            await self._batch(scope, {name: by_subject[name] for name in names[at : at + _BATCH]}, done)

    async def _batch(self, scope: Scope, erasures: Mapping[str, list[Erased]], done: Replayed) -> None:
        """Again as long as something was erased, since a redaction names so many versions at most."""
        left = dict(erasures)
        erased: set[str] = set()
        while left:
            found = await queries.subjects(self.connection, scope.scope_key, left)
            wanted = {name: command(left[name], found.get(name), self.epoch) for name in left}
            items = {name: item for name, item in wanted.items() if item is not None}
            over = left.keys() - items.keys()
            await queries.replayed(self.connection, [one.erasure_id for name in over for one in left[name]])
            done.nothing_left += len(over - erased)
            refused = await self._send(scope, items) if items else {}
            for code in refused.values():
                done.refuse(code)
            erased |= items.keys() - refused.keys()
            left = {name: left[name] for name in items if name not in refused}
        done.erased += len(erased)

    async def _send(self, scope: Scope, items: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
        """By the subject's id, the codes of those that were refused."""
        document = {"scope_id": scope.scope_id, "atomic": False, "items": list(items.values())}
        answer = await self._call(scope, "batch", document)
        results = answer["results"] if "results" in answer else [answer] * len(items)
        refused = {name: found["error"]["code"] for name, found in zip(items, results, strict=True) if "error" in found}
        return {name: code for name, code in refused.items() if code not in _GONE}

    async def _delete_scope(self, scope: Scope, done: Replayed) -> bool:
        """Whether it is deleted now."""
        basis = f"restore:{self.epoch}"
        answer = await self._call(scope, "delete_scope", {"scope_id": scope.scope_id, "policy_basis": basis})
        if "error" in answer:
            done.refuse(answer["error"]["code"])
            return False
        done.scopes += 1
        return True

    async def _call(self, scope: Scope, operation: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
        token = self.signer.sign(service_principal("restore", scope.tenant_id))
        answer = await self.write.call(Call(operation, token, dumps(document)))
        found: Mapping[str, Any] = orjson.loads(answer.body)
        return found
