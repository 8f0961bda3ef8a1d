"""The published description of the API, tried by schemathesis on all services: requests that keep it and that break it.

No internal error, no status, content type, header or body that the description does not promise, and nothing accepted
that it forbids. `make fuzz` runs the same for longer: PAMSPEC_FUZZ_EXAMPLES requests of each operation, and the phase
that goes through every keyword of every schema.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from conftest import TemplateDatabase
from services.gateway.tests import whole as all_services
from services.gateway.tests.whole import Whole

HERE = Path(__file__).resolve().parent
DESCRIPTION = HERE.parents[2] / "contracts" / "openapi.json"
EXAMPLES = int(os.environ.get("PAMSPEC_FUZZ_EXAMPLES", "0"))
SHORT = ["--phases", "fuzzing", "--max-examples", "2", "--seed", "4"]
LONG = ["--phases", "coverage,fuzzing", "--max-examples", str(EXAMPLES)]
CHANNELS = r"/(stream|ws)$"
"""They have no end, so a request of them would wait for ever; `test_streams.py` is about them."""


@pytest.mark.timeout(7200 if EXAMPLES else 900)
async def test_the_description_is_kept(template_database: TemplateDatabase, tmp_path: Path) -> None:
    """On services of its own: what it sends may end its key."""
    async with all_services.running(template_database, tmp_path) as whole:
        await _tried(whole, tmp_path)


async def _tried(whole: Whole, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("schemathesis")
    arguments: list[str | Path] = [
        "--config-file",
        HERE / "schemathesis.toml",
        "run",
        DESCRIPTION,
        "--url",
        whole.url,
        "--no-color",
    ]
    arguments += ["--exclude-path-regex", CHANNELS, "--workers", "2", "--no-shrink", *(LONG if EXAMPLES else SHORT)]
    variables = {"PAMSPEC_API_KEY": whole.key, "SCHEMATHESIS_HOOKS": "services.gateway.tests.schemathesis_hooks"}
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        env=os.environ | variables | {"PYTHONPATH": str(HERE.parents[2])},
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, output.decode()
