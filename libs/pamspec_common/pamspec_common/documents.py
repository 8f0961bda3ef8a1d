"""What the request documents of all services share (contracts/schemas/request.json), and how they are refused.

Invariant: a member that is unknown, null or of another type is a refusal that names the member; nothing is ignored
(PAMSPEC P123, S26).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec

from pamspec_common.errors import InvalidRequest, PamspecError
from pamspec_common.ids import ID_PATTERN, Id, is_id, mint
from pamspec_common.instants import parse

MAX_SEQUENCE = 2**63 - 2
"""The highest ledger sequence; the next bigint stands for a span that has not ended."""
MAX_PAGE = 1000
MAX_KEY = 255
MAX_WAIT_MS = 30_000
RETRY_FIELDS = frozenset({"operation_id", "idempotency_key", "min_sequence", "wait_ms"})
"""What may differ between two attempts of one operation (S16)."""

Lifecycle = Literal["scratch", "candidate", "active", "superseded", "deprecated", "archived"]
Availability = Literal["available", "partially_redacted", "redacted", "deleted"]
Retention = Literal["retained", "expired", "pending_deletion", "legal_hold"]
Validation = Literal["unverified", "corroborated", "disputed", "rejected"]
STATES: dict[str, tuple[str, ...]] = {
    "lifecycle_state": get_args(Lifecycle),
    "availability_state": get_args(Availability),
    "retention_state": get_args(Retention),
    "validation_state": get_args(Validation),
}

_KEY_PATTERN = r"^[^\x00-\x1f\x7f]+\Z"
Position = Annotated[int, msgspec.Meta(ge=0, le=MAX_SEQUENCE)]
Sequence = Annotated[int, msgspec.Meta(ge=1, le=MAX_SEQUENCE)]
Epoch = Annotated[int, msgspec.Meta(ge=1)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY, pattern=_KEY_PATTERN)]
WaitMs = Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)]

STANDARD_TYPES = frozenset(
    {
        "claim",
        "decision",
        "task",
        "artifact",
        "observation",
        "entity",
        "summary",
        "tool_invocation",
        "tool_result",
        "working_memory",
    }
)
_EXTENSION_TYPE = re.compile(r"^(?:[a-z0-9]+(?:\.[a-z0-9-]+)+\.[a-z][a-z0-9-]*|[a-z][a-z0-9+.-]*:[^\x00-\x1f\x7f]*)\Z")


def is_extension_type(object_type: str) -> bool:
    """Whether an object type is a reverse-domain name or a URI of at most 255 characters (P57)."""
    return len(object_type) <= MAX_KEY and _EXTENSION_TYPE.match(object_type) is not None


class Attestation(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What somebody else vouches for about an actor: evidence, kept to the letter, times as they were written."""

    agent_manifest_ref: str | None = None
    manifest_digest: str | None = None
    manifest_digest_algorithm: str | None = None
    attestation_authority: str | None = None
    attestation_method: str | None = None
    signature: str | None = None
    signature_algorithm: str | None = None
    issued_at: str | None = None
    not_before: str | None = None
    not_after: str | None = None
    capabilities_declared: list[str] | None = None
    did_ref: str | None = None

    def __post_init__(self) -> None:
        names = self.capabilities_declared
        if names and len(set(names)) != len(names):
            raise ValueError("One capability is named twice")
        for time in (self.issued_at, self.not_before, self.not_after):
            if time is not None:
                parse(time)


class Actor(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The actor that a body names."""

    actor_id: Id
    actor_kind: str
    display_name: str | None = None
    on_behalf_of_actor_id: Id | None = None
    delegation_id: Id | None = None
    attestation: Attestation | None = None


class CommonFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields that every operation may carry, but for its scope and its actor."""

    operation_id: Id | None = None
    idempotency_key: Key | None = None
    min_sequence: Position | None = None
    wait_ms: WaitMs = 0
    ledger_epoch: Epoch | None = None
    delegation_id: Id | None = None
    evaluation_run_id: Id | None = None


class Pagination(msgspec.Struct, forbid_unknown_fields=True):
    """A page: its size and where it starts."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)]
    cursor: Annotated[str, msgspec.Meta(min_length=1, max_length=16_384)] | None = None


T = TypeVar("T")
_PLACE = re.compile(r" - at `\$\.?([^`]*)`")
_NO_ID = f"Expected `str` matching regex {ID_PATTERN!r}"
_INDEX = re.compile(r"\[[^\]]*\]")


def decode(kind: type[T], document: Any, *, free: Collection[str] = ()) -> T:
    """A document of `kind` from a parsed body; the members named `free` may hold nulls, at any depth."""
    if not isinstance(document, dict):
        raise InvalidRequest("The body is not a JSON object; send one operation document.")
    _refuse_nulls(document, "", free)
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as problem:
        raise misfit(kind, str(problem)) from None


def misfit(kind: Any, problem: str, error: type[PamspecError] = InvalidRequest, where: str = "") -> PamspecError:
    """The refusal that a validation error of msgspec stands for, with the path of the member below `where`."""
    found = _PLACE.search(problem)
    place = found[1] if found else ""
    path = ".".join(filter(None, (where, place)))
    expected = _PLACE.sub("", problem).replace("LosslessFloat", "float")
    if expected.startswith("Invalid enum value"):
        # msgspec would show the word that was sent; this shows those that can be.
        expected = "Expected one of " + ", ".join(_words(kind, _INDEX.sub("", place).split(".")))
    elif expected == _NO_ID:
        expected = "Expected an id like name:part, with letters, digits and +._:-/ after the colon"
    return error(f"{expected} (field {path or 'of the document'}).", details={"field": path})


def _words(kind: Any, path: list[str]) -> list[str]:
    """The words that may stand at this path of a type."""
    if get_origin(kind) is Literal:
        return [] if path else list(get_args(kind))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        members = msgspec.structs.fields(kind)
        return [word for one in members if [one.encode_name] == path[:1] for word in _words(one.type, path[1:])]
    return [word for inner in get_args(kind) for word in _words(inner, path)]


def _refuse_nulls(document: dict[str, Any], path: str, free: Collection[str]) -> None:
    for name, value in document.items():
        if value is None:
            raise null_member(f"{path}{name}")
        if isinstance(value, dict) and name not in free:
            _refuse_nulls(value, f"{path}{name}.", free)


def null_member(path: str, error: type[PamspecError] = InvalidRequest) -> PamspecError:
    """The refusal of null where a member can be left out."""
    return error(f"{path} is null; leave it out instead.", details={"field": path})


def own_operation_id(document: Any, otherwise: str | None = None) -> str:
    """The operation_id of a body that may be wrong elsewhere; without one `otherwise`, or a new id."""
    found = document.get("operation_id") if isinstance(document, dict) else None
    return found if isinstance(found, str) and is_id(found) else otherwise or mint("op")


def take_header_key(request: CommonFields, key: str | None) -> None:
    """Let a request without a key have that of the header Idempotency-Key; InvalidRequest where the two differ."""
    if key is None:
        return
    if request.idempotency_key is not None and request.idempotency_key != key:
        raise InvalidRequest("The header Idempotency-Key and the field idempotency_key differ; send one of them.")
    if len(key) > MAX_KEY or not re.match(_KEY_PATTERN, key):
        raise InvalidRequest(
            f"The header Idempotency-Key must have 1 to {MAX_KEY} characters without control characters.",
            details={"limit": MAX_KEY},
        )
    request.idempotency_key = key
