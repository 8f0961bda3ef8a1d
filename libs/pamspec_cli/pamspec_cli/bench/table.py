"""The table: which figures there are, in which order they are measured, and how they are shown."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pamspec_cli.bench import (
    authorization,
    catchup,
    create_inprocess,
    delegation,
    delegation_checks,
    delivery,
    finding,
    http,
    idle,
    limits,
    operations,
    oracle,
    queries,
    recall,
    relay,
    searchable,
    tracing,
    transfer,
    vectors,
    verify,
)
from pamspec_cli.bench.environment import Environment, environment
from pamspec_cli.bench.figures import Figure
from pamspec_cli.bench.generator import LoadFailed
from pamspec_cli.bench.relay import Disorder
from pamspec_cli.demo.conversations import Conversation
from pamspec_cli.servers.process import ServerError
from pamspec_client import ClientError

Report = Callable[[Figure], None]
Said = Callable[[str], None]


@dataclass(frozen=True)
class Group:
    """Figures that are measured together; `scale` ones only when they are asked for."""

    names: tuple[str, ...]
    measure: Callable[[Environment], Awaitable[Sequence[Figure]]]
    scale: bool = False


@dataclass
class Results:
    """What a run measured, and the settings of the servers that it measured on."""

    durability: dict[str, str]
    figures: list[Figure]

    def document(self) -> dict[str, object]:
        """The results as JSON."""
        return {"durability": self.durability, "figures": [figure.document() for figure in self.figures]}


def _one(measure: Callable[[Environment], Awaitable[Figure]]) -> Callable[[Environment], Awaitable[Sequence[Figure]]]:
    async def measured(where: Environment) -> Sequence[Figure]:
        return [await measure(where)]

    return measured


GROUPS = (
    Group(("create.hot_scope",), _one(create_inprocess.hot_scope)),
    Group(("create.1000_scopes",), _one(create_inprocess.thousand_scopes)),
    Group(("ops.transition", "ops.relate", "ops.promote"), operations.operations),
    Group(("delegation.exercise", "delegation.check"), delegation.hot_grant),
    Group(
        ("delegation.check_uncached", "delegation.check_cached", "delegation.revoked"),
        delegation_checks.checks,
    ),
    Group(("http.create", "http.read", "http.batch_items"), http.one_process),
    Group(("http.create_processes",), _one(http.create_processes)),
    Group(("limits.noisy_p99",), _one(limits.noisy_neighbour)),
    Group(("authorization.create",), _one(authorization.create)),
    Group(("tracing.one_in_100",), _one(tracing.one_in_100), scale=True),
    Group(("tracing.every",), _one(tracing.every), scale=True),
    Group(
        tuple(f"oracle.{name}.{where}" for name in oracle.OPERATIONS for where in oracle.PLACES),
        oracle.oracle,
    ),
    Group(("relay.drain",), _one(relay.drain)),
    Group(("delivery.sse", "delivery.nats"), delivery.commit_to_delivered),
    Group(("catchup.poll",), _one(catchup.catch_up)),
    Group(("catchup.long_ledger",), _one(catchup.long_ledger), scale=True),
    Group(("verify.entries",), _one(verify.entries)),
    Group(("export.versions", "import.versions"), transfer.rates),
    Group(("export.resident", "import.resident"), transfer.resident, scale=True),
    Group(recall.NAMES, recall.recall),
    Group(searchable.NAMES, searchable.searchable),
    Group(finding.NAMES, finding.at_scale, scale=True),
    Group(("query.structured",), _one(queries.structured), scale=True),
    Group(("history.long_object",), _one(queries.long_object), scale=True),
    Group(("vectors.recall", "vectors.recall_1_percent", "vectors.recall_50_percent"), vectors.recall, scale=True),
    Group(("idle.resident", "idle.start", "idle.bytes_per_object"), idle.idle),
)

NAMES = tuple(name for group in GROUPS for name in group.names)


def chosen(only: Sequence[str]) -> list[Group]:
    """The groups to measure: all but the scale figures, or those that a name or the start of one picks."""
    if not only:
        return [group for group in GROUPS if not group.scale]
    return [group for group in GROUPS if any(name.startswith(tuple(only)) for name in group.names)]


async def run(groups: Sequence[Group], report: Report, said: Said, conversations: Sequence[Conversation]) -> Results:
    """Measure the groups one after the other, each on servers of its own that are durable; Weakened when not."""
    results = Results({}, [])
    for group in groups:
        said(f"measuring {', '.join(group.names)}")
        async with environment(conversations) as where:
            results.durability = where.durability.settings
            for figure in await _measured(group, where):
                results.figures.append(figure)
                report(figure)
    return results


async def _measured(group: Group, where: Environment) -> Sequence[Figure]:
    """The figures of a group; when it can't be measured, figures that say why and fail."""
    try:
        return await group.measure(where)
    except (LoadFailed, Disorder, ClientError, ServerError, TimeoutError, RuntimeError) as error:
        note = f"not measured: {type(error).__name__}: {error}"
        return [Figure(name, 0.0, "", None, None, "measured", False, note=note) for name in group.names]


def lines(results: Results) -> list[str]:
    """The settings of the servers, then the figures as a table for people."""
    figures = results.figures
    head = ("", "figure", "value", "floor", "ratio", "target", "spread")
    rows = [head, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    settings = ", ".join(f"{name} = {value}" for name, value in results.durability.items())
    return [settings, *shown, *(f"{figure.name}: {figure.note}" for figure in figures if figure.note)]


def _row(figure: Figure) -> tuple[str, ...]:
    floor = "" if figure.floor is None else f"{_number(figure.floor)}"
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    mark = "ok" if figure.ok else "SHORT"
    spread = f"{figure.spread:.0%}"
    return (mark, figure.name, f"{_number(figure.value)} {figure.unit}", floor, ratio, figure.target, spread)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
