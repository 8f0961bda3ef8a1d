"""Version N-1 beside N on one database (`make test-upgrade`): its own code, as git has it, on the tables of N.

PREVIOUS names the commit to take N-1 from; without it, it is the one before the last that brought a migration, so
that the tables really differ. N-1 runs with the dependencies of N.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from pamspec_cli.deployment import SERVICES
from tests.integration.conftest import SCALED, fleets
from tests.integration.harness import SECOND_DOOR, Fleet, deployed, start_all
from tests.integration.load import ordeal

ROOT = Path(__file__).parents[2]
MIGRATIONS = ":(glob)services/*/pamspec_*/migrations/**"
MIGRATE = """
import asyncio, sys
from pamspec_cli.servers import databases
from pamspec_common.migrations import migrate
print(*asyncio.run(migrate(sys.argv[1], databases.migration_sources())), sep="\\n")
"""

pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class Previous:
    """A checkout of the version before."""

    commit: str
    directory: Path

    @property
    def path(self) -> str:
        """What PYTHONPATH is for its code."""
        return os.pathsep.join(
            str(place) for kind in ("libs", "services") for place in (self.directory / kind).iterdir()
        )

    def python(self, *arguments: str) -> str:
        """What its code says."""
        environment = os.environ | {"PYTHONPATH": self.path, "PYTHONSAFEPATH": "1"}
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout


def git(*arguments: str) -> str:
    """What git says about this tree."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Previous]:
    """The version before, as a worktree of its own."""
    commit = os.environ.get("PREVIOUS") or git("log", "-1", "--format=%H^", "--", MIGRATIONS)
    directory = tmp_path_factory.mktemp("previous") / "tree"
    git("worktree", "add", "--detach", "--quiet", str(directory), commit)
    try:
        yield Previous(git("rev-parse", "--short", commit), directory)
    finally:
        git("worktree", "remove", "--force", str(directory))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def old(previous: Previous) -> AsyncIterator[Fleet]:
    """A deployment whose store N-1 made and N has migrated, with every service as N-1."""

    async def made_by_previous(dsn: str) -> None:
        applied = await asyncio.to_thread(previous.python, "-c", MIGRATE, dsn)
        assert applied.strip()

    async with deployed(SCALED | {"PYTHONPATH": previous.path}, before_migration=made_by_previous) as fleet:
        fleets.append(fleet)
        yield fleet
        fleets.remove(fleet)


def version_of(fleet: Fleet, instance: str, previous: Previous) -> str:
    """`N-1` or `N`: where the running process has its code from."""
    pid = fleet[instance].process.pid
    assert pid is not None
    maps = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return "N-1" if f"PYTHONPATH={previous.path}".encode() in maps else "N"


def test_the_version_before_is_another(previous: Previous) -> None:
    """Its code comes from its own tree, and the tables that it knows are not those of N."""
    where = previous.python("-c", "import pamspec_write, pamspec_common; print(pamspec_write.__file__)")
    assert where.startswith(str(previous.directory))
    known = "from pamspec_common.schema import known; print(sorted(known().items()))"
    here = subprocess.run([sys.executable, "-c", known], capture_output=True, text=True, check=True).stdout
    there = previous.python("-c", known)
    print(f"N-1 is {previous.commit}: {there}N: {here}")
    assert os.environ.get("PREVIOUS") or there != here


async def test_services_are_replaced_one_by_one_under_load(old: Fleet, previous: Previous) -> None:
    """First N-1 alone on the new tables, then both, then N alone: nothing is lost, doubled or out of order."""
    assert {version_of(old, name, previous) for name in SERVICES} == {"N-1"}
    async with ordeal(old, "upgrade", per_second=60) as load:
        await load.more(200)
        for name in SERVICES:
            await old[name].stop()
            old.add(name, variables={"PYTHONPATH": ""})
            await old[name].start()
            assert version_of(old, name, previous) == "N"
            await load.more(60)
        await old.ready(within_s=120)
    assert {version_of(old, name, previous) for name in SERVICES} == {"N"}


async def test_both_versions_side_by_side(old: Fleet, previous: Previous) -> None:
    """Two doors, two writers, two of each that shares work by leases: one of each version, on one store and one bus."""
    theirs = {"PYTHONPATH": previous.path}
    write = old.add("write", "write-2", theirs)
    query = old.add("query", "query-2", theirs)
    others = [old.add(name, f"{name}-2", theirs) for name in ("relay", "subscription", "indexing", "delegation")]
    door = old.add("gateway", SECOND_DOOR, theirs | {"PAMSPEC_WRITE_URL": write.url, "PAMSPEC_QUERY_URL": query.url})
    async with old.extra(write, query, door, *others):
        assert version_of(old, "write-2", previous) == "N-1"
        async with ordeal(old, "beside", gateways=("gateway", SECOND_DOOR), per_second=60) as load:
            await load.more(200)
            for instance in ("relay", "relay-2", "subscription-2", "write", "write-2"):
                old.kill(instance)
                await load.more(60)
                await old[instance].start()
            await load.more(60)


async def test_the_way_back(old: Fleet, previous: Previous) -> None:
    """N has written; N-1 takes over again, on what N wrote."""
    async with ordeal(old, "back", per_second=60) as load:
        await load.more(60)
        for name in SERVICES:
            await old[name].stop()
            await start_all([old.add(name)])
            assert version_of(old, name, previous) == "N-1"
            await load.more(30)
        await old.ready(within_s=120)
