"""Databases of a running server: one migrated template, and clones of it that cost milliseconds.

Roles belong to the whole server, so their passwords are set once beside the template.
"""

import importlib.util
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

from pamspec_cli.servers.process import ServerError
from pamspec_common.postgres import role_settings

SERVICES = ("write", "relay", "subscription", "query", "delegation", "indexing", "retention_sweeper", "gateway")
"""The order of migrations: the core schema first."""

ROLES = tuple(f"pamspec_{service}" for service in SERVICES)


@dataclass(frozen=True)
class Database:
    """One database: its superuser's DSN, and one DSN for each service role."""

    name: str
    dsn: str = field(repr=False)
    roles: Mapping[str, str] = field(repr=False)

    def role(self, service: str) -> str:
        """The DSN of one service's role, by the service's short name."""
        return self.roles[f"pamspec_{service}"]


def migration_sources() -> list[tuple[str, Path]]:
    """Each service's migrations, in the order in which they are applied; a service without any is left out."""
    found = []
    for service in SERVICES:
        spec = importlib.util.find_spec(f"pamspec_{service}")
        if spec is None or not spec.submodule_search_locations:
            raise ServerError(f"the package pamspec-{service} is not installed: run  make setup")
        folder = Path(next(iter(spec.submodule_search_locations))) / "migrations"
        if folder.is_dir():
            found.append((service, folder))
    return found


def with_database(dsn: str, database: str) -> str:
    """The same server and login, another database."""
    parts = urlsplit(dsn)
    return urlunsplit(parts._replace(path=f"/{database}"))


def with_login(dsn: str, user: str, password: str) -> str:
    """The same server and database, another login."""
    parts = urlsplit(dsn)
    address = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{address}"))


async def create_database(dsn: str, name: str, template: str | None = None) -> str:
    """Creates a database, a clone of `template` if one is named; its DSN. No session may be open on the template."""
    connection = await asyncpg.connect(dsn)
    try:
        source = f" TEMPLATE {_name(template)}" if template else ""
        await connection.execute(f"CREATE DATABASE {_name(name)}{source}")
    finally:
        await connection.close()
    return with_database(dsn, name)


async def drop_database(dsn: str, name: str) -> None:
    """Drops a database and ends its sessions; fine when there is none."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"DROP DATABASE IF EXISTS {_name(name)} WITH (FORCE)")
    finally:
        await connection.close()


async def set_role_passwords(dsn: str, passwords: Mapping[str, str]) -> None:
    """Gives these roles a login with these passwords, and what their sessions begin with (`role_settings`).

    The roles must exist; a statement can't carry parameters here.
    """
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            for role, password in passwords.items():
                literal = await connection.fetchval("SELECT quote_literal($1::text)", password)
                await connection.execute(f"ALTER ROLE {_name(role)} LOGIN PASSWORD {literal}")
                for setting, value in role_settings(role.removeprefix("pamspec_")).items():
                    await connection.execute(f"ALTER ROLE {_name(role)} SET {_name(setting)} TO {value}")
    finally:
        await connection.close()


async def existing_roles(dsn: str) -> list[str]:
    """Which of the service roles this server knows."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch("SELECT rolname FROM pg_roles WHERE rolname = ANY($1::text[])", list(ROLES))
    finally:
        await connection.close()
    return [str(row["rolname"]) for row in rows]


def role_dsns(dsn: str, passwords: Mapping[str, str]) -> dict[str, str]:
    """The DSN of each role on the database of `dsn`."""
    return {role: with_login(dsn, role, password) for role, password in passwords.items()}


def new_name(prefix: str) -> str:
    """A database name that nobody has."""
    return f"{prefix}_{secrets.token_hex(6)}"


def _name(identifier: str) -> str:
    if not identifier.replace("_", "").isalnum() or not identifier.isascii():
        raise ValueError("a database or role name holds ASCII letters, digits and underscores only")
    return f'"{identifier}"'
