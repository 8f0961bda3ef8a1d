"""Decoding: a document from its bytes, once, with the field's path in what does not fit.

What is wrong with the shape is invalid_request; what is wrong with something that would enter the object (provenance,
quality_signals) is invalid_object. Content stays the client's bytes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import msgspec

from pamspec_common import instants
from pamspec_common.contracts.formats import is_date_time
from pamspec_common.documents import misfit, null_member
from pamspec_common.errors import InvalidObject, InvalidRequest, PamspecError
from pamspec_common.instants import wire

T = TypeVar("T")
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decode(kind: type[T], data: bytes | msgspec.Raw, error: type[PamspecError] = InvalidRequest, where: str = "") -> T:
    """A document of `kind`; what does not fit is `error`, with the field's path and what is expected there."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        document: T = decoder.decode(data)
    except msgspec.ValidationError as problem:
        raise misfit(kind, str(problem), error, where) from None
    except msgspec.DecodeError:
        raise error(f"{where or 'The body'} is not a JSON object of the expected form.") from None
    return document


_TIMES = frozenset(
    [
        "observed_at",
        "asserted_at",
        "valid_from",
        "valid_until",
        "recorded_at",
        "last_verified_at",
        "assessed_at",
        "issued_at",
        "not_before",
        "not_after",
        "start_at",
        "expires_at",
        "old_expires_at",
    ]
)
_PARTS: dict[str, type[PamspecError]] = {
    "actor": InvalidRequest,
    "granting_actor": InvalidObject,
    "delegated_actor": InvalidObject,
    "source_event": InvalidRequest,
    "deterministic_clock": InvalidRequest,
    "pagination": InvalidRequest,
    "provenance": InvalidObject,
    "quality_signals": InvalidObject,
    "integrity": InvalidObject,
}


_WINDOW = frozenset({"not_before", "not_after"})
"""The window of a grant."""
_CONTENT = frozenset({"canonical_content", "target_canonical_content"})


def check_members(document: dict[str, Any]) -> None:
    """Raise for what the decoder lets pass: null for an optional member, and times of another form than RFC 3339.

    An optional member is left out, never null; only content may be any JSON value.
    """
    for name, value in document.items():
        if name in _CONTENT:
            continue
        _check_member(name, value, InvalidObject if name in _WINDOW else InvalidRequest)
        if name in _PARTS and isinstance(value, dict):
            _check_part(name, value, _PARTS[name])


def _check_part(path: str, part: dict[str, Any], error: type[PamspecError]) -> None:
    for name, value in part.items():
        _check_member(f"{path}.{name}", value, error)
        if isinstance(value, dict):
            _check_part(f"{path}.{name}", value, error)


def _check_member(path: str, value: Any, error: type[PamspecError]) -> None:
    if value is None:
        raise null_member(path, error)
    if isinstance(value, str) and path.rpartition(".")[2] in _TIMES and not _is_time(value):
        raise error(
            f"{path} must be an RFC 3339 time with an offset, in the years 1 to 9999 of UTC.", details={"field": path}
        )


def _is_time(text: str) -> bool:
    try:
        instants.parse(text)
    except ValueError:
        return False
    return is_date_time(text)


def plain(document: msgspec.Struct) -> dict[str, Any]:
    """A struct as a JSON document with every instant in the wire form."""
    built: dict[str, Any] = _plain(msgspec.to_builtins(document, builtin_types=(datetime,)))
    return built


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(below) for name, below in value.items()}
    if isinstance(value, datetime):
        return wire(value)
    return value
