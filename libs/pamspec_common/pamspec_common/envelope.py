"""The envelope: one version of an object, relationship or delegation as every door answers it.

A version is stored in two halves, both JSON bytes. `metadata` is immutable and digested into the ledger: every field
that is never erased, with `actor` and `provenance` reduced to what remains after an erasure (ids, recorded_at, activity
`erased`), and the keyed digests of the erasable parts. The erasable half is `content` and `private`. `private` holds
{provenance, actor?, integrity?, quality_signals?, policy_basis?} whole, which take the place of those of `metadata`,
and `note` {policy_basis}, which belongs to the event and is served by inspect_history only.

Invariant: the same stored version gives the same envelope bytes always (PAMSPEC P154-P156); an erased version shows
ids, states, sequence and times, with content `{"tombstone":true}` and the provenance that must remain (S21).
"""

from __future__ import annotations

from typing import Any

import orjson

from pamspec_common.strict_json import Fragment, dumps

SPEC_VERSION = "0.1.0-draft"
TOMBSTONE = b'{"tombstone":true}'
DIGEST_MEMBERS = ("content_digest", "private_digest")


def envelope_bytes(metadata: bytes, content: bytes | None, private: bytes | None) -> bytes:
    """The envelope of a stored version; `content` and `private` are None once erased."""
    return dumps(envelope(metadata, content, private))


def envelope(metadata: bytes, content: bytes | None, private: bytes | None) -> dict[str, Any]:
    """The envelope as a document whose canonical_content is a raw JSON fragment; a delegation has none."""
    document: dict[str, Any] = orjson.loads(metadata)
    for member in DIGEST_MEMBERS:
        document.pop(member, None)
    if private is not None:
        document.update(orjson.loads(private))
        document.pop("note", None)
    if "delegation_id" not in document:
        document["canonical_content"] = Fragment(TOMBSTONE if content is None else content)
    return document


def project(metadata: bytes, content: bytes | None, private: bytes | None, fields: list[str]) -> bytes:
    """The named top-level fields of an envelope; names that it lacks are left out."""
    document = envelope(metadata, content, private)
    return dumps({name: document[name] for name in fields if name in document})


def note(private: bytes | None) -> dict[str, Any] | None:
    """The erasable note of the event that made a version ({policy_basis}), or None."""
    if private is None:
        return None
    found: dict[str, Any] | None = orjson.loads(private).get("note")
    return found
