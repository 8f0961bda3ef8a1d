"""The catalogues as typed values: operations, streams, events and errors.

Invariant: an unknown member is an error, so that a mistyped setting never goes unnoticed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_NS_PER_S, _NS_PER_MS = 1_000_000_000, 1_000_000

Service = Literal["gateway", "write", "relay", "query", "subscription", "indexing", "delegation", "retention_sweeper"]
Party = Service | Literal["server", "agent", "operator"]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of a catalogue."""


class Convenience(_Entry, frozen=True):
    """Another HTTP door to an operation."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    query: list[str]


class Operation(_Entry, frozen=True):
    """An operation: its owner, what it needs and what it may answer beyond the common errors."""

    summary: str
    service: Service
    public: bool
    writes: bool
    status: int
    right: str | None
    headers: list[str]
    errors: list[str]
    conveniences: list[Convenience]
    streams: Literal["request", "answer"] | None = None
    """Which side is lines of JSON of any length; such an operation is there over HTTP alone."""


class Channel(_Entry, frozen=True):
    """A door that carries frames."""

    summary: str
    service: Service
    path: str
    right: str
    resume: str | None
    errors: list[str]


class OperationCatalogue(_Entry, frozen=True):
    """operations.yaml."""

    version: int
    headers: dict[str, str]
    common_errors: list[str]
    channels: dict[str, Channel]
    operations: dict[str, Operation]


class ErrorCode(_Entry, frozen=True):
    """An error code: its HTTP status, the others that it may travel with, and whether a retry can help."""

    status: int
    retryable: bool | Literal["depends"]
    summary: str
    also: dict[int, Literal["operation", "door"]] = {}

    def statuses(self) -> list[int]:
        """The statuses that it has in an operation's answer."""
        return [self.status, *(status for status, where in self.also.items() if where == "operation")]


Subject = Literal["object", "relationship", "object_or_relationship", "optional_object", "none"]

_PRESENCE: Mapping[str, tuple[frozenset[str], ...]] = {
    "object": (frozenset({"object_id"}),),
    "relationship": (frozenset({"relationship_id"}),),
    "object_or_relationship": (frozenset({"object_id"}), frozenset({"relationship_id"})),
    "optional_object": (frozenset({"object_id"}), frozenset()),
    "none": (frozenset(),),
}


class EventType(_Entry, frozen=True):
    """An event type: who causes it, through what, which ids it carries and who may read it."""

    producer: Service
    via: Literal["commit", "record_event"]
    subject: Subject
    version: Literal["required", "optional", "absent"]
    readers: Literal["all", "party"]
    summary: str
    parties: list[str] = []

    def broken_presence(self, event: Mapping[str, Any]) -> str | None:
        """What the event's ids break of this type, or None."""
        if event.keys() & {"object_id", "relationship_id"} not in _PRESENCE[self.subject]:
            return f"object_id and relationship_id must say: {self.subject}"
        if self.version != "optional" and ("version_id" in event) != (self.version == "required"):
            return f"version_id is {self.version}"
        return None


class Header(_Entry, frozen=True):
    """A message header."""

    description: str
    pattern: str
    set_by: Party


class Replicas(_Entry, frozen=True):
    """How many copies of a stream a cluster keeps, and the setting that changes it."""

    default: int
    setting: str


class Republish(_Entry, frozen=True, rename={"source": "from", "destination": "to"}):
    """Where stored messages are published again."""

    source: str
    destination: str


class StreamConfig(_Entry, frozen=True):
    """The settings of a stream that its name does not change."""

    storage: str
    retention: str
    discard: str
    max_age_seconds: int
    max_msgs: int
    max_bytes: int
    max_msgs_per_subject: int
    max_msg_size: int
    duplicate_window_ms: int
    allow_atomic: bool
    allow_direct: bool
    deny_delete: bool
    deny_purge: bool
    compression: str
    allow_rollup_hdrs: bool = False


class Consumer(_Entry, frozen=True):
    """A service's durable pull consumer on one stream of each partition."""

    name: str
    service: Service
    description: str
    ack_wait_seconds: int
    max_ack_pending: int
    max_deliver: int
    deliver: Literal["all", "new"] = "all"

    def durable(self, partition: int) -> str:
        """Its name on the stream of a partition."""
        return fill(self.name, partition=str(partition))

    def request(self, partition: int) -> dict[str, Any]:
        """The `config` of a JetStream consumer create request; an acknowledgement counts for all up to its message."""
        return {
            "durable_name": self.durable(partition),
            "description": self.description,
            "deliver_policy": self.deliver,
            "ack_policy": "all",
            "ack_wait": self.ack_wait_seconds * _NS_PER_S,
            "max_ack_pending": self.max_ack_pending,
            "max_deliver": self.max_deliver,
            "replay_policy": "instant",
        }


class Stream(_Entry, frozen=True):
    """A stream of each partition, or one of the deployment."""

    name: str
    description: str
    account: str
    per: Literal["partition", "deployment"]
    producers: list[Party]
    subjects: list[str]
    config: StreamConfig
    replicas: Replicas
    consumers: list[Consumer]
    republish: Republish | None = None

    def stream_name(self, partition: int) -> str:
        """The stream's name for a partition."""
        return fill(self.name, partition=str(partition))


class SubjectHeaders(_Entry, frozen=True):
    """Which headers the messages of a subject carry."""

    required: list[str]
    optional: list[str]


class Reply(_Entry, frozen=True):
    """What answers a request on a subject."""

    payload: str
    headers: SubjectHeaders


class BusSubject(_Entry, frozen=True):
    """A family of subjects: who sends there, who listens, and what a message is."""

    pattern: str
    transport: Literal["jetstream", "core", "request"]
    account: str
    description: str
    producers: list[Party]
    consumers: list[Party]
    payload: str | None
    headers: SubjectHeaders
    exported_to: list[str] = []
    reply: Reply | None = None

    def subject(self, **values: str) -> str:
        """The subject for these values. KeyError when a placeholder has none, ValueError when one is not a token."""
        missing = set(_PLACEHOLDER.findall(self.pattern)) - values.keys()
        if missing:
            raise KeyError(*sorted(missing))
        return fill(self.pattern, **values)

    def filter(self, **values: str) -> str:
        """The subscription subject: a placeholder without a value matches anything."""
        return _PLACEHOLDER.sub("*", fill(self.pattern, **values))


class TokenRule(_Entry, frozen=True):
    """How a token of a subject is made."""

    description: str
    pattern: str


class Bus(_Entry, frozen=True):
    """streams.yaml."""

    version: int
    placeholders: dict[str, str]
    token: TokenRule
    accounts: dict[str, str]
    headers: dict[str, Header]
    streams: dict[str, Stream]
    subjects: dict[str, BusSubject]

    def stream_request(self, key: str, partition: int, *, replicas: int | None = None) -> dict[str, Any]:
        """The body of a JetStream stream create or update request for a stream of a partition (times in ns)."""
        stream = self.streams[key]
        settings = msgspec.to_builtins(stream.config)
        settings["max_age"] = settings.pop("max_age_seconds") * _NS_PER_S
        settings["duplicate_window"] = settings.pop("duplicate_window_ms") * _NS_PER_MS
        request: dict[str, Any] = {
            "name": stream.stream_name(partition),
            "description": stream.description,
            "subjects": [_stored_subjects(self.subjects[name], partition) for name in stream.subjects],
            "num_replicas": replicas or stream.replicas.default,
            **settings,
        }
        if stream.republish is not None:
            request["republish"] = {
                "src": fill(stream.republish.source, partition=str(partition)),
                "dest": fill(stream.republish.destination, partition=str(partition)),
            }
        return request


def fill(template: str, **values: str) -> str:
    """A name or subject with these placeholders filled. ValueError for a value with a dot, space or wildcard."""
    for name, value in values.items():
        if not re.fullmatch(r"[A-Za-z0-9_-]+", value):
            raise ValueError(f"{name} is no token of a subject")
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), template)


def _stored_subjects(subject: BusSubject, partition: int) -> str:
    filled = fill(subject.pattern, partition=str(partition))
    return filled.split(".{", 1)[0] + ".>" if "{" in filled else filled
