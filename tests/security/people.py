"""Who calls in these tests, and what there is to hide."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from pamspec_common.keys import new_key
from services.gateway.tests.behind import insert_key
from services.gateway.tests.whole import SCOPE, Whole

GARDEN, VAULT = SCOPE, "workspace:vault"
SECRET = "the-safe-opens-with-4711"
TELLS = {"access_denied", "subscription_opened", "subscription_closed"}
Document = dict[str, Any]
_numbers = itertools.count(1)


def number() -> int:
    """A number that no other name of this run has."""
    return next(_numbers)


@dataclass(frozen=True)
class Answer:
    """What a caller got."""

    status: int
    body: bytes
    headers: dict[str, str] = field(repr=False)

    @property
    def document(self) -> Document:
        """The body as JSON."""
        parsed: Document = orjson.loads(self.body)
        return parsed

    @property
    def code(self) -> str | None:
        """The code of a refusal."""
        return self.document["error"]["code"] if self.status >= 400 else None


@dataclass(frozen=True)
class Caller:
    """Somebody with a key."""

    product: Whole = field(repr=False)
    key: str = field(repr=False)
    actor_id: str

    async def ask(self, operation: str, document: Document | bytes, **headers: str) -> Answer:
        """The answer of an operation, whatever it is."""
        body = document if isinstance(document, bytes) else orjson.dumps(document)
        sent = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", **headers}
        url = f"{self.product.url}/v1/{operation}"
        async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=sent) as response:
            return Answer(
                response.status,
                await response.read(),
                {name.lower(): value for name, value in response.headers.items()},
            )

    async def do(self, operation: str, document: Document) -> Document:
        """The answer of an operation that must succeed."""
        answer = await self.ask(operation, document)
        assert answer.status < 300, (operation, answer)
        return answer.document

    async def create(self, scope_id: str, **members: Any) -> Document:
        """A new object, a claim where nothing else is said."""
        given: Document = {
            "object_type": "claim",
            "canonical_content": {"n": number()},
            "provenance": {"activity": "t"},
        }
        return await self.do("create", {"scope_id": scope_id, **given, **members})

    async def head(self, scope_id: str) -> int:
        """The last position of a scope's ledger."""
        answer = await self.ask("verify_ledger", {"scope_id": scope_id})
        assert answer.status == 200, answer
        return int(answer.headers["pamspec-as-of-sequence"])

    async def changes(self, scope_id: str, after: int) -> list[str]:
        """The types of the entries of a scope's ledger after a position, but for those that only tell of somebody.

        A refusal is told of within a minute, in the scope that was named.
        """
        found: list[str] = []
        page: Document = {"scope_id": scope_id, "after_sequence": after, "pagination": {"limit": 1000}}
        while True:
            answer = await self.do("inspect_history", page)
            found += [event["event_type"] for event in answer["events"]]
            if answer["next_cursor"] is None:
                return [one for one in found if one not in TELLS]
            page["pagination"] = {"limit": 1000, "cursor": answer["next_cursor"]}


@dataclass(frozen=True)
class Hidden:
    """Ids of what is in the vault, or of nothing at all."""

    scope: str
    object: str
    version: str
    scratch: str
    scratch_version: str
    relationship: str
    snapshot: str
    subscription: str
    operation: str
    hold: str
    schema: str
    event: str

    def names(self) -> dict[str, str]:
        """Each id by what it is."""
        return dict(vars(self))


NOTHING = Hidden(
    "workspace:nowhere", "obj:nothing", "ver:nothing", "obj:nothing-2", "ver:nothing-2", "rel:nothing", "snap:nothing",
    "sub:nothing", "op:nothing", "hold:nothing", "https://schemas.example.com/nothing", "evt:nothing",
)  # fmt: skip


@dataclass(frozen=True)
class People:
    """The owner of everything, a guest who may do anything in the garden, and the administrator of another tenant."""

    owner: Caller
    guest: Caller
    foreigner: Caller
    hidden: Hidden
    product: Whole = field(repr=False)

    @classmethod
    async def of(cls, product: Whole) -> People:
        """The people of a product, with a full vault."""
        owner = Caller(product, product.key, "agent:a")
        guest = await person(product, "tenant:t", "agent:guest", roles=())
        foreigner = await person(product, "tenant:elsewhere", "agent:foreign", roles=("admin",))
        await foreigner.do("create_scope", {"scope_id": GARDEN})
        for role in ("contributor", "editor", "reviewer", "curator", "reader"):
            await bind(owner, guest.actor_id, role, GARDEN)
        return cls(owner, guest, foreigner, await _fill(owner), product)


async def person(product: Whole, tenant: str, actor_id: str, roles: tuple[str, ...], **rights: Any) -> Caller:
    """Somebody new."""
    key = new_key()
    await insert_key(
        product.database.dsn, key, tenant=tenant, actor=actor_id, key_id=f"key:{number()}:x", roles=roles,
        rights=rights.get("rights", ()),
    )  # fmt: skip
    return Caller(product, key, actor_id)


async def bind(owner: Caller, actor_id: str, role: str, scope_id: str, *, ends: bool = False) -> None:
    """Give a role, or take it."""
    request = {"scope_id": scope_id, "actor_id": actor_id, "role": role, "policy_basis": "test"}
    await owner.do("unbind_role" if ends else "bind_role", request)


async def _fill(owner: Caller) -> Hidden:
    await owner.do("create_scope", {"scope_id": VAULT})
    secret = {"canonical_content": {"statement": SECRET}}
    first = await owner.create(VAULT, **secret, validation_state="corroborated")
    second = await owner.create(VAULT, **secret)
    noted = {"task_ref": "task:vault", "content": SECRET}
    scratch = await owner.create(VAULT, canonical_content=noted, object_type="working_memory")
    joined = await owner.do(
        "relate",
        {
            "scope_id": VAULT, "source_object_id": first["object_id"], "target_object_id": second["object_id"],
            "relationship_type": "supports", "directionality": "directed", "provenance": {"activity": "t"},
        },
    )  # fmt: skip
    sealed = await owner.do("seal_snapshot", {"scope_id": VAULT})
    subscribed = await owner.do("subscribe", {"scope_id": VAULT, "after_sequence": 0})
    held = await owner.do("place_hold", {"scope_id": VAULT, "object_type": "artifact", "policy_basis": "t"})
    schema = "https://schemas.example.com/vault"
    await owner.do("register_schema", {"scope_id": VAULT, "schema_id": schema, "schema": {"title": SECRET}})
    return Hidden(
        VAULT, first["object_id"], first["version_id"], scratch["object_id"], scratch["version_id"],
        joined["relationship_id"], sealed["snapshot"]["snapshot_id"], subscribed["subscription_id"],
        first["operation_id"], held["hold_id"], schema, first["event_id"],
    )  # fmt: skip
