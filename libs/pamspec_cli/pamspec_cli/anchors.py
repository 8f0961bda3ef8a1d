"""Where a verification from the command line finds signed checkpoints: the bucket on the bus, and files.

A place that can't be reached is reported as that; the verification of the store goes on without it.
"""

import json
import os
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import nats
import nats.errors
from nats.aio.client import Client

from pamspec_cli.connection import Misused
from pamspec_cli.data import DataDirectory
from pamspec_cli.deployment import checkpoint_keys
from pamspec_cli.servers.process import LOOPBACK
from pamspec_common.checkpoint_bucket import CheckpointBucket
from pamspec_common.checkpoint_files import CheckpointFiles
from pamspec_common.checkpoints import Checkpoint, is_signed, public_keys
from pamspec_common.ids import subject_token
from pamspec_common.streams import StreamRefused
from pamspec_common.verification.anchors import Anchor

_CONNECT_S = 3


@dataclass
class Places:
    """The places of one deployment, and the keys that check what they hold."""

    keys: Mapping[str, bytes]
    client: Client | None
    files: Mapping[str, Checkpoint] | None
    """The newest checkpoint of each ledger id; None without a directory."""

    async def read(self, tenant_id: str, scope_id: str, ledger_id: bytes) -> list[Anchor]:
        """What each place holds of a scope's ledger."""
        found = [await self._bucket(tenant_id, scope_id)]
        if self.files is not None:
            found.append(Anchor.of("files", self.files.get(ledger_id.hex()), self.keys))
        return found

    def unknown(self, ledger_ids: Collection[str]) -> list[Checkpoint]:
        """Signed checkpoints in files of ledgers that are none of these, and were not given up for lost."""
        return [
            checkpoint
            for ledger_id, checkpoint in sorted((self.files or {}).items())
            if ledger_id not in ledger_ids and checkpoint.size and is_signed(checkpoint, self.keys)
        ]

    async def _bucket(self, tenant_id: str, scope_id: str) -> Anchor:
        if self.client is None:
            return Anchor("bucket", "unreachable")
        try:
            held = await CheckpointBucket(self.client).get(subject_token(tenant_id), subject_token(tenant_id, scope_id))
        except nats.errors.NoRespondersError:
            return Anchor("bucket", "missing")
        except (nats.errors.Error, StreamRefused, TimeoutError, OSError):
            return Anchor("bucket", "unreachable")
        return Anchor.of("bucket", None if held is None else held.document, self.keys)


@asynccontextmanager
async def places(data: DataDirectory) -> AsyncIterator[Places]:
    """The places that the environment names, else those of the data directory."""
    path = directory(data)
    client = await bus(data)
    try:
        yield Places(known_keys(data), client, CheckpointFiles(path).latest() if path.is_dir() else None)
    finally:
        if client is not None:
            await client.close()


def directory(data: DataDirectory) -> Path:
    """Where checkpoints are in files: PAMSPEC_CHECKPOINT_DIR, else in the data directory."""
    return Path(os.environ.get("PAMSPEC_CHECKPOINT_DIR") or data.path / "checkpoints")


def known_keys(data: DataDirectory) -> dict[str, bytes]:
    """The public keys of PAMSPEC_CHECKPOINT_PUBLIC_KEYS and of the data directory."""
    given = os.environ.get("PAMSPEC_CHECKPOINT_PUBLIC_KEYS")
    try:
        return public_keys({**checkpoint_keys(data).public(), **(json.loads(given) if given else {})})
    except (ValueError, TypeError, AttributeError) as error:
        raise Misused(
            f"PAMSPEC_CHECKPOINT_PUBLIC_KEYS is no JSON object of public keys by their ids: {error}"
        ) from None


async def bus(data: DataDirectory) -> Client | None:
    """A connection as a service to PAMSPEC_NATS_URL, else to the embedded server; None where nothing answers."""
    url, seed = os.environ.get("PAMSPEC_NATS_URL"), os.environ.get("PAMSPEC_NATS_NKEY_SEED")
    if url is None:
        port, file = data.port("nats"), data.path / "nats" / "service.nk"
        if port is None or not file.is_file():
            return None
        url, seed = f"nats://{LOOPBACK}:{port}", file.read_text(encoding="ascii").strip()
    try:
        return await nats.connect(
            url.split(","), nkeys_seed_str=seed, allow_reconnect=False, connect_timeout=_CONNECT_S, error_cb=_quiet
        )
    except (nats.errors.Error, OSError, TimeoutError):
        return None


async def _quiet(error: Exception) -> None:
    """What is wrong with the bus is told as the state of the anchor."""
