"""`pamspec backup`: a base backup of the store by PostgreSQL's own tools, and its way back into a data directory."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

import asyncpg

from pamspec_cli.commands.verify import database_url
from pamspec_cli.connection import FAILED, OK, Misused, reporting
from pamspec_cli.data import DataDirectory, chosen
from pamspec_cli.servers.postgres import LOWEST, NEWEST, installation
from pamspec_cli.servers.process import unprivileged_account

SUMMARY = "copy the whole store while it runs, or put such a copy in the place of a store"
_MANIFEST = "backup_manifest"
_CHECKSUMS = ("--manifest-checksums", "SHA256")
_READ_BYTES = 1024 * 1024


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--to", type=Path, metavar="DIR", help="make a backup in this directory, new or empty")
    what.add_argument("--restore", type=Path, metavar="DIR", help="put this backup in the place of the store")
    parser.add_argument("--data", metavar="DIR", help="the data directory (PAMSPEC_DATA, else ./.data)")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """0 when the backup is made and verified, or put in place."""
    data = DataDirectory(chosen(arguments.data))
    if arguments.to is not None:
        return _make(data, arguments.to.expanduser().resolve())
    return _restore(data, arguments.restore.expanduser().resolve())


def _make(data: DataDirectory, target: Path) -> int:
    if target.exists() and any(target.iterdir()):
        raise Misused(f"{target} is not empty: name a new directory for each backup")
    url = database_url(data)
    programs = installation(asyncio.run(_major(url))) / "bin"
    parts = urlsplit(url)
    environment = {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "PGHOST": parts.hostname or "",
        "PGPORT": str(parts.port or 5432),
        "PGUSER": unquote(parts.username or ""),
        "PGPASSWORD": unquote(parts.password or ""),
        "PGAPPNAME": "pamspec backup",
    }
    failed = _call(
        [str(programs / "pg_basebackup"), "--pgdata", str(target), "--checkpoint", "fast", *_CHECKSUMS], environment
    )
    failed = failed or _differing(target)
    if failed:
        print(f"no backup: {failed}")
        return FAILED
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    print(f"{target}: {size / 1e6:.0f} MB, verified")
    print(f"keys are not in it: keep {data.path / 'secrets'} and postgres/superuser.password in another place")
    return OK


async def _major(url: str) -> int:
    """The server's major version; Misused where our programs are of no such version."""
    try:
        connection = await asyncpg.connect(url)
    except (OSError, asyncpg.PostgresError) as error:
        raise Misused(f"the store does not answer ({type(error).__name__}): check that it runs") from error
    major = connection.get_server_version().major
    await connection.close()
    if major not in (LOWEST, NEWEST):
        raise Misused(f"the store runs PostgreSQL {major}: use the pg_basebackup that came with it")
    return int(major)


def _call(command: list[str], environment: dict[str, str]) -> str:
    """What went wrong; empty when nothing did."""
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stderr.strip()[-1000:] or f"{Path(command[0]).name} failed"


def _differing(backup: Path) -> str:
    """What differs from the backup's manifest; empty when nothing does."""
    for file in json.loads((backup / _MANIFEST).read_bytes())["Files"]:
        name = file.get("Path") or bytes.fromhex(file["Encoded-Path"]).decode("utf-8", "surrogateescape")
        path = backup / name
        if not path.is_file() or path.stat().st_size != file["Size"]:
            return f"{name} is missing or cut off"
        if file.get("Checksum-Algorithm") == "SHA256" and _sha256(path) != file["Checksum"]:
            return f"{name} is not as it was copied"
    return ""


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while block := content.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _restore(data: DataDirectory, source: Path) -> int:
    if not (source / _MANIFEST).is_file():
        raise Misused(f"{source} is no backup: it has no {_MANIFEST}")
    if os.environ.get("PAMSPEC_DATABASE_URL"):
        raise Misused("PAMSPEC_DATABASE_URL names a server of your own: restore it with its own tools")
    differing = _differing(source)
    if differing:
        raise Misused(f"{source} is not whole: {differing}; take another backup")
    store = data.path / "postgres"
    if not (store / "superuser.password").is_file():
        raise Misused(
            f"{store} has no superuser.password: first copy it, and {data.path / 'secrets'}, from the old place"
        )
    with data:
        draft, place = store / "data.restored", store / "data"
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(source, draft, symlinks=True)
        draft.chmod(0o700)
        _give(draft)
        if place.exists():
            kept = _aside(store)
            place.rename(kept)
            print(f"the store that was there is now {kept}: remove it when it is not needed any more")
        data.unfinished_restore.touch(mode=0o600)
        draft.rename(place)
    print(f"{source} is in place. Nothing may serve yet: call  pamspec restored --data {data.path}  next")
    return OK


def _give(directory: Path) -> None:
    """To the account as which the server runs, where that is not ours."""
    account = unprivileged_account()
    if account is not None:
        for path in (directory, *directory.rglob("*")):
            os.chown(path, account.uid, account.gid, follow_symlinks=False)


def _aside(store: Path) -> Path:
    number = 1
    while (store / f"data.before-{number}").exists():
        number += 1
    return store / f"data.before-{number}"
