"""A consumer as a process: once its first effect is committed it says so in a file, and never acknowledges."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from nats.aio.msg import Msg

sys.path.insert(0, str(Path(__file__).parents[3]))

from libs.pamspec_common.tests.consumption import PATIENT, SCHEMA, Remembering
from pamspec_common.consuming.consumer import Consumer
from pamspec_common.consuming.puller import Puller
from pamspec_common.consuming.settings import ConsumingSettings
from pamspec_common.service import Background


async def main(database_url: str, nats_url: str, seed: str, mark: str) -> None:
    async def hang(self: Puller, messages: Sequence[Msg]) -> None:
        Path(mark).touch()
        await asyncio.Event().wait()

    Puller.acknowledge = hang  # type: ignore[method-assign]
    given = {"database_url": database_url, "nats_url": nats_url, "nats_nkey_seed": seed, **PATIENT}
    background = Background()
    await Consumer("delegation", SCHEMA, ConsumingSettings(**given), Remembering()).start(background)
    await background.stopping.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
