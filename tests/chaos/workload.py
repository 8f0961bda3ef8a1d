"""Clients that create, count up, read and delete the same few objects; some try again, some give up at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from pamspec_client import (
    AsyncClient,
    NoAnswer,
    ObjectDeleted,
    ObjectNotFound,
    ServiceUnavailable,
    VersionConflict,
)
from pamspec_client.documents import Provenance
from tests.chaos.history import Done, History, Kind

PROVENANCE: Provenance = {"activity": "chaos"}
_NO_OUTCOME = (NoAnswer, ServiceUnavailable)
"""ObjectDeleted is another: who repeats a write whose object was deleted since is not told whether it was committed."""
_CHOICES: Sequence[tuple[Kind, int]] = (("create", 3), ("increment", 8), ("read", 6), ("delete", 1))
_PAUSE_S = 0.02
_LETTERS = str.maketrans("0123456789-", "abcdefghijx")


@dataclass
class Workload:
    """Sessions over the same scopes and objects."""

    clients: Sequence[AsyncClient]
    scopes: Sequence[str]
    history: History
    seed: int
    stopping: bool = False
    _objects: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Until `stopping`; what is under way then is finished."""
        async with asyncio.TaskGroup() as group:
            for number, client in enumerate(self.clients):
                chance = random.Random(f"{self.seed}-{number}")
                group.create_task(self._session(client, number, chance))

    async def _session(self, client: AsyncClient, number: int, chance: random.Random) -> None:
        turn = 0
        kinds, weights = zip(*_CHOICES, strict=True)
        while not self.stopping:
            turn += 1
            (kind,) = chance.choices(kinds, weights)
            if kind == "create" or not self._objects:
                await self._create(client, f"obj:{number}-{turn}", chance)
            else:
                # Few objects at a time, so that sessions get in each other's way.
                object_id = chance.choice(self._objects[-12:])
                await {"increment": self._increment, "read": self._read, "delete": self._delete}[kind](
                    client, object_id
                )
            await asyncio.sleep(chance.random() * 2 * _PAUSE_S)

    async def _act(self, kind: Kind, client: AsyncClient, object_id: str) -> None:
        if kind == "increment":
            await self._increment(client, object_id)
        elif kind == "delete":
            await self._delete(client, object_id)
        else:
            await self._read(client, object_id)

    async def _create(self, client: AsyncClient, object_id: str, chance: random.Random) -> None:
        scope_id = chance.choice(self.scopes)
        self.history.objects[object_id] = scope_id
        began = self.history.now()
        try:
            made = await client.create(
                scope_id=scope_id,
                object_id=object_id,
                object_type="claim",
                canonical_content={"count": 0, "token": token(object_id)},
                provenance=PROVENANCE,
            )
        except _NO_OUTCOME:
            self._note("create", object_id, began)
            return
        self._note(
            "create", object_id, began, version=1, event_id=made.event_id, sequence=made.ledger_sequence, count=0
        )
        self._objects.append(object_id)

    async def _increment(self, client: AsyncClient, object_id: str) -> None:
        found = await self._read(client, object_id)
        if found is None:
            return
        version_id, count, version = found
        began = self.history.now()
        try:
            made = await client.update(
                scope_id=self.history.objects[object_id],
                object_id=object_id,
                expected_version_id=version_id,
                canonical_content={"count": count + 1, "token": token(object_id)},
                provenance=PROVENANCE,
            )
        except (*_NO_OUTCOME, ObjectDeleted):
            self._note("increment", object_id, began)
        except VersionConflict:
            self.history.refused["VersionConflict"] += 1
        else:
            self._note(
                "increment",
                object_id,
                began,
                version=version + 1,
                event_id=made.event_id,
                sequence=made.ledger_sequence,
                count=count + 1,
            )

    async def _read(self, client: AsyncClient, object_id: str) -> tuple[str, int, int] | None:
        began = self.history.now()
        try:
            found = await client.read(scope_id=self.history.objects[object_id], object_id=object_id)
        except _NO_OUTCOME:
            return None
        except (ObjectDeleted, ObjectNotFound) as error:
            self.history.refused[type(error).__name__] += 1
            self._note("read", object_id, began, version=0)
            return None
        content = found.content
        assert isinstance(content, dict)
        self._note("read", object_id, began, version=found.sequence, count=content["count"])
        return found.version_id, content["count"], found.sequence

    async def _delete(self, client: AsyncClient, object_id: str) -> None:
        found = await self._read(client, object_id)
        if found is None:
            return
        version_id, _, version = found
        began = self.history.now()
        try:
            gone = await client.delete(
                scope_id=self.history.objects[object_id],
                object_id=object_id,
                expected_version_id=version_id,
                policy_basis="chaos",
            )
        except (*_NO_OUTCOME, ObjectDeleted):
            self._note("delete", object_id, began)
        except VersionConflict:
            self.history.refused["VersionConflict"] += 1
        else:
            self._note(
                "delete", object_id, began, version=version + 1, event_id=gone.event_id, sequence=gone.ledger_sequence
            )

    def _note(
        self,
        kind: Kind,
        object_id: str,
        began: float,
        *,
        version: int | None = None,
        event_id: str = "",
        sequence: int = 0,
        count: int = -1,
    ) -> None:
        ended = 0.0 if version is None else self.history.now()
        scope_id = self.history.objects[object_id]
        self.history.done.append(Done(kind, scope_id, object_id, began, ended, version or 0, event_id, sequence, count))


def token(object_id: str) -> str:
    """A word that only this object holds, to be searched for."""
    return "zq" + object_id.removeprefix("obj:").translate(_LETTERS)


async def ended(task: asyncio.Task[None], within_s: float) -> None:
    """Wait for what is under way; raises what a session was refused with."""
    async with asyncio.timeout(within_s):
        await task
