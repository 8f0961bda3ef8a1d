"""`pamspec migrate`: brings a database to this version, gives the services their logins, and opens the first tenant."""

import argparse
import asyncio
import os
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

import asyncpg

from pamspec_cli import development
from pamspec_cli.servers import databases
from pamspec_cli.servers.process import ServerError
from pamspec_common.migrations import migrate

SUMMARY = "bring a database to this version; with --secrets also the services' logins and the first API key"
_WAIT_SECONDS = 60.0
_PAUSE_SECONDS = 0.5


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "--secrets", type=Path, metavar="DIR", help="what  pamspec provision  made: logins and the first API key"
    )


def run(arguments: argparse.Namespace) -> int:
    """Applies what is missing; a second call, or one beside it, changes nothing more."""
    return asyncio.run(_run(arguments.secrets))


async def _run(directory: Path | None) -> int:
    url = os.environ.get("PAMSPEC_DATABASE_URL") or _text(directory, "admin", "pamspec_database_url")
    if not url:
        raise ServerError("no database: set PAMSPEC_DATABASE_URL to an administrator's URL, or name --secrets")
    await _answering(url)
    for name in await migrate(url, databases.migration_sources()):
        print(f"applied {name}")
    if directory is not None:
        passwords = {f"pamspec_{service}": _password(directory, service) for service in databases.SERVICES}
        await databases.set_role_passwords(url, passwords)
        pepper, key = _text(directory, "admin", "pamspec_key_pepper"), _text(directory, "admin", "api_key")
        await development.ensure_principal(url, pepper.encode(), development.DevelopmentKey(key))
    print("the database is up to date")
    return 0


async def _answering(url: str) -> None:
    """Waits for the server, which may start beside us."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            connection = await asyncpg.connect(url, timeout=5)
        except (OSError, TimeoutError, asyncpg.CannotConnectNowError, asyncpg.InvalidCatalogNameError) as error:
            if time.monotonic() > deadline:
                raise ServerError(f"the database does not answer: {str(error) or type(error).__name__}") from None
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        except asyncpg.PostgresError as error:
            raise ServerError(f"PAMSPEC_DATABASE_URL: {error}: check the address and the login") from None
        await connection.close()
        return


def _password(directory: Path, service: str) -> str:
    password = urlsplit(_text(directory, service, "pamspec_database_url")).password
    if not password:
        raise ServerError(f"{directory / service} holds no login: run  pamspec provision {directory}  first")
    return unquote(password)


def _text(directory: Path | None, *names: str) -> str:
    path = Path(*names) if directory is None else directory.joinpath(*names)
    if directory is None or not path.exists():
        return ""
    return path.read_text(encoding="utf-8").strip()
