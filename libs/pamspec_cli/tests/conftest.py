"""A service of the test's own, started as a person starts it."""

from collections.abc import AsyncIterator

import pytest

from libs.pamspec_cli.tests.up_process import Up, own_up


@pytest.fixture
async def up() -> AsyncIterator[Up]:
    async with own_up() as one:
        yield one
