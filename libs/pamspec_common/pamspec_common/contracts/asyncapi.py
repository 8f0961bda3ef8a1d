"""The AsyncAPI document of the bus and of the channels, derived from the contracts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from pamspec_common.contracts.catalogues import Bus, BusSubject, OperationCatalogue, SubjectHeaders
from pamspec_common.contracts.components import Components
from pamspec_common.contracts.sources import Documents

Json = dict[str, Any]
_SCHEMA_FORMAT = "application/schema+json;version=draft-2020-12"
_CLIENTS = frozenset({"agent"})
_REQUEST, _ANSWER = "pamspec:operation:{}:request", "pamspec:operation:{}:answer"


def document(documents: Documents) -> Json:
    """The AsyncAPI 3.0 document; its operations are told from the service's side."""
    return _Builder(documents).build()


class _Builder:
    def __init__(self, documents: Documents) -> None:
        self._bus = msgspec.convert(documents.streams, Bus)
        self._catalogue = msgspec.convert(documents.operations, OperationCatalogue)
        self._components = Components(documents.schemas, "#/components/schemas/", "/schema")
        self._channels: dict[str, Json] = {}
        self._operations: dict[str, Json] = {}

    def build(self) -> Json:
        for name, subject in self._bus.subjects.items():
            if subject.payload == "operation":
                self._request_reply(name, subject)
            else:
                self._subject(name, subject)
        for name, channel in self._catalogue.channels.items():
            message = {"frame": {"name": "frame", **self._payload("pamspec:schema:frame")}}
            self._channels[name] = {
                "address": channel.path,
                "description": channel.summary,
                "parameters": _parameters(channel.path, {"subscription_id": "Id of the subscription."}),
                "messages": message,
            }
            self._operations[f"send_{name}"] = _operation("send", name, ["frame"])
        schemas = self._components.collected()
        return {
            "asyncapi": "3.0.0",
            "info": {
                "title": "PAMSPEC memory service: bus and channels",
                "version": "0.1.0",
                "description": "NATS subjects between the services and to agents, and the channels of subscriptions.",
            },
            "defaultContentType": "application/json",
            "channels": self._channels,
            "operations": self._operations,
            "components": {
                "schemas": {
                    name: {"schemaFormat": _SCHEMA_FORMAT, "schema": schema} for name, schema in schemas.items()
                }
            },
        }

    def _subject(self, name: str, subject: BusSubject) -> None:
        message: Json = {"name": name}
        if subject.payload is not None:
            message.update(self._payload(subject.payload))
        message.update(self._headers(subject.headers))
        self._channels[name] = self._channel(subject, {name: message})
        if not _CLIENTS.issuperset(subject.producers):
            self._operations[f"send_{name}"] = _operation("send", name, [name])
        if not _CLIENTS.issuperset(subject.consumers):
            received = self._operations[f"receive_{name}"] = _operation("receive", name, [name])
            if subject.reply is not None:
                back = self._headers(subject.reply.headers)
                answers = {
                    f"{name}_answer": self._message(f"{name}_answer", subject.reply.payload, back),
                    "error": self._message("error", "pamspec:schema:error", back),
                }
                self._channels[f"{name}_reply"] = _inbox(answers)
                received["reply"] = _reply(name, answers)

    def _request_reply(self, name: str, subject: BusSubject) -> None:
        public = [
            operation
            for operation, entry in self._catalogue.operations.items()
            if entry.public and entry.streams is None
        ]
        sent = self._headers(subject.headers)
        back = self._headers(subject.reply.headers) if subject.reply is not None else {}
        requests = {f"{word}_request": self._message(f"{word}_request", _REQUEST.format(word), sent) for word in public}
        answers = {f"{word}_answer": self._message(f"{word}_answer", _ANSWER.format(word), back) for word in public}
        answers["error"] = self._message("error", "pamspec:schema:error", back)
        self._channels[name] = self._channel(subject, requests)
        self._channels[f"{name}_reply"] = _inbox(answers)
        for word in public:
            self._operations[word] = {
                **_operation("receive", name, [f"{word}_request"]),
                "summary": self._catalogue.operations[word].summary,
                "reply": _reply(name, (f"{word}_answer", "error")),
            }

    def _channel(self, subject: BusSubject, messages: Json) -> Json:
        return {
            "address": subject.pattern,
            "description": subject.description,
            "parameters": _parameters(subject.pattern, self._bus.placeholders),
            "messages": messages,
            "x-account": subject.account,
            "x-transport": subject.transport,
            "x-producers": list(subject.producers),
            "x-consumers": list(subject.consumers),
        }

    def _message(self, name: str, identifier: str, headers: Json) -> Json:
        return {"name": name, **self._payload(identifier), **headers}

    def _payload(self, identifier: str) -> Json:
        return {"payload": {"schemaFormat": _SCHEMA_FORMAT, "schema": self._components.use(identifier)}}

    def _headers(self, headers: SubjectHeaders) -> Json:
        """The member `headers` of a message, where it has any."""
        names = [*headers.required, *headers.optional]
        if not names:
            return {}
        described: Json = {
            "type": "object",
            "properties": {
                name: {
                    "type": "string",
                    "description": self._bus.headers[name].description,
                    "pattern": self._bus.headers[name].pattern,
                }
                for name in names
            },
        }
        if headers.required:
            described["required"] = list(headers.required)
        return {"headers": described}


def _operation(action: str, channel: str, messages: list[str]) -> Json:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{message}"} for message in messages],
    }


def _inbox(messages: Json) -> Json:
    return {"address": None, "description": "The inbox that the request names.", "messages": messages}


def _reply(name: str, messages: Iterable[str]) -> Json:
    return {
        "channel": {"$ref": f"#/channels/{name}_reply"},
        "messages": [{"$ref": f"#/channels/{name}_reply/messages/{message}"} for message in messages],
    }


def _parameters(address: str, described: dict[str, str]) -> Json:
    return {name: {"description": described[name]} for name in re.findall(r"\{([a-z_]+)\}", address)}
