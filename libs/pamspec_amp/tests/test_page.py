"""The example of docs/architecture/amp.md, as it is printed there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path

from libs.conftest import Product
from libs.pamspec_amp.tests.conftest import check_cell

PAGE = Path(__file__).resolve().parents[3] / "docs" / "architecture" / "amp.md"


async def test_the_example_works_as_printed(product: Product) -> None:
    found = re.search(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PAMSPEC_URL": product.url, "PAMSPEC_API_KEY": product.key}
    for _ in range(2):
        shell = await asyncio.create_subprocess_exec(
            "bash", "-e", "-c", found[1], env=environment, stdout=asyncio.subprocess.PIPE
        )
        told, _ = await shell.communicate()
        assert shell.returncode == 0
        first, rest = told.decode().split("\n", 1)
        assert first == "workspace:amp  is ready for cells"
        cell, end = json.JSONDecoder().raw_decode(rest)
        check_cell(cell)
        listed = json.loads(rest[end:])
        assert cell["id"] in [one["id"] for one in listed["results"]]
        assert cell["identity"]["created_by"] == "planner"
