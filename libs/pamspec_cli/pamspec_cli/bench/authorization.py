"""What authorization costs: creates over HTTP by live rights, in turns with a product that permits everything."""

from pamspec_cli.bench import bodies
from pamspec_cli.bench.environment import Environment, Product
from pamspec_cli.bench.figures import Figure, at_least, in_turns
from pamspec_cli.bench.generator import Generator
from pamspec_cli.bench.http import SECONDS

SCOPE = "bench:authorization"
SHARE = 1 / 1.1
_RULE = (
    '@id("no-tasks") forbid (principal, action == Action::"create", resource) when { resource.object_type == "task" };'
)


async def create(environment: Environment) -> Figure:
    """At most 10 % dearer than without: warm, with a rule of the scope beside those of the roles."""
    async with (
        environment.product() as product,
        environment.product(module="pamspec_cli.bench.allow_all") as free,
        Generator() as generator,
    ):
        async with environment.client(product) as client:
            await client.create_scope(scope_id=SCOPE, scope_kind="bench")
            rules = {"scope_id": SCOPE, "rules": _RULE, "expected_rules_version": 0, "policy_basis": "bench"}
            await client.call("set_access_rules", rules)

        async def creates(of: Product) -> float:
            load = await generator.post(of.url, "/v1/create", bodies.create_bytes(SCOPE), environment.key, SECONDS)
            return load.per_second

        for of in (product, free):
            await creates(of)
        rate, floor = await in_turns(lambda: creates(product), lambda: creates(free))
    note = "64 connections; floor: the same product with a write service that permits everything"
    return at_least("authorization.create", rate, "requests/s", floor, SHARE, note=note)
