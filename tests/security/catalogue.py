"""What PostgreSQL's catalogue says of our tables, and a row for each of them made from it alone."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import asyncpg

OURS = ("pg_catalog", "information_schema", "public", "pg_toast")

COLUMNS_SQL = """
SELECT c.oid, c.relispartition AS part, n.nspname || '.' || c.relname AS name,
       c.relrowsecurity AND c.relforcerowsecurity AS walled,
       array_agg(a.attname::text ORDER BY a.attnum) AS columns,
       array_agg(format_type(a.atttypid, NULL) ORDER BY a.attnum) AS types,
       array_agg(a.attidentity <> '' OR a.attgenerated <> '' ORDER BY a.attnum) AS made
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'p') AND n.nspname <> ALL ($1::text[]) AND n.nspname NOT LIKE 'pg_temp%'
GROUP BY 1, 2, 3, 4 ORDER BY 3
"""
CHECKS_SQL = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = $1 AND contype = 'c'"
ROLES_SQL = "SELECT rolname::text FROM pg_roles WHERE rolname LIKE 'pamspec\\_%' ORDER BY 1"
_SAMPLES = {
    "bigint": 1, "integer": 1, "smallint": 1, "xid8": 1, "bytea": b"x", "boolean": False, '"char"': b"o", "jsonb": "{}",
    "text[]": [], "bigint[]": [], "bytea[]": [], "integer[]": [],
    "vector": "[1]",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A table of ours."""

    oid: int
    name: str
    walled: bool
    columns: dict[str, str] = field(hash=False)
    """Those that are written, by their types."""
    all_columns: frozenset[str] = frozenset()
    part: bool = False
    """Whether it is a partition: its rows are those of the table that it belongs to."""

    @property
    def owned(self) -> bool:
        """Whether its rows belong to a scope or a tenant."""
        return bool(self.all_columns & {"scope_key", "tenant_id"})


async def tables(conn: asyncpg.Connection) -> list[Table]:
    """Every table that is not PostgreSQL's own, nor the list of migrations."""
    return [
        Table(
            row["oid"], row["name"], row["walled"],
            {n: kind for n, kind, made in zip(row["columns"], row["types"], row["made"], strict=True) if not made},
            frozenset(row["columns"]), row["part"],
        )
        for row in await conn.fetch(COLUMNS_SQL, list(OURS))
    ]  # fmt: skip


async def roles(conn: asyncpg.Connection) -> list[str]:
    """The roles of the services, and those that own functions."""
    return [row[0] for row in await conn.fetch(ROLES_SQL)]


async def plant(conn: asyncpg.Connection, table: Table, tenant: str, key: int) -> None:
    """A row of that tenant and scope, whatever it refers to; its values are the first that each check allows."""
    checks = " ".join([row[0] for row in await conn.fetch(CHECKS_SQL, table.oid)])
    values: dict[str, object] = {}
    for name, kind in table.columns.items():
        if name == "scope_key" or (name.endswith("_key") and kind == "bigint"):
            values[name] = key
        elif name == "tenant_id":
            values[name] = tenant
        elif kind in ("text", '"char"') and (word := _allowed(checks, name)):
            values[name] = word.encode() if kind == '"char"' else word
        elif kind == "text":
            values[name] = f"{name}:{key}"
        elif kind.startswith("timestamp"):
            continue
        elif kind == "bytea":
            values[name] = f"{name}:{key}".encode()
        else:
            values[name] = _SAMPLES[kind]
    for name, kind in table.columns.items():
        if kind.startswith("timestamp"):
            values[name] = await conn.fetchval("SELECT clock_timestamp()")
    places = ", ".join(f"${n + 1}" for n in range(len(values)))
    names = ", ".join(f'"{name}"' for name in values)
    await conn.execute(f"INSERT INTO {table.name} ({names}) VALUES ({places}) ON CONFLICT DO NOTHING", *values.values())


def _allowed(checks: str, column: str) -> str | None:
    """The first word that a check lists for a column."""
    found = re.search(rf"\(?\"?{column}\"? = ANY \(+ARRAY\['([^']*)'", checks)
    return found[1] if found else None
