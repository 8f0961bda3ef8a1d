"""The OpenAPI document of the public door, derived from the contracts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pamspec_common.contracts.catalogues import Channel, Convenience, ErrorCode, Operation, OperationCatalogue
from pamspec_common.contracts.components import Components, request_member, resolve
from pamspec_common.contracts.sources import Documents
from pamspec_common.transfer import MEDIA_TYPE

Json = dict[str, Any]
_LINE = "pamspec:operation:export:answer"
_REQUEST_HEADERS: dict[str, Json] = {
    "Idempotency-Key": {
        "description": "The idempotency key, when the body carries none.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    },
    "Last-Event-ID": {
        "description": "The id of the last event that was handled: acknowledges up to it and goes on after it.",
        "schema": {"type": "string"},
    },
}


def document(documents: Documents) -> Json:
    """The OpenAPI 3.1 document: each public operation with its conveniences, and the channels over HTTP."""
    return _Builder(documents).build()


class _Builder:
    def __init__(self, documents: Documents) -> None:
        self._schemas = documents.schemas
        self._catalogue = msgspec.convert(documents.operations, OperationCatalogue)
        self._errors = msgspec.convert(documents.errors["errors"], dict[str, ErrorCode], str_keys=True)
        self._components = Components(documents.schemas, "#/components/schemas/")

    def build(self) -> Json:
        paths: dict[str, Json] = {}
        for name, operation in self._catalogue.operations.items():
            if operation.public:
                paths[f"/v1/{name}"] = {"post": self._operation(name, operation)}
        for name, operation in self._catalogue.operations.items():
            for convenience in operation.conveniences:
                methods = paths.setdefault(convenience.path, {})
                methods[convenience.method.lower()] = self._convenience(name, operation, convenience)
        for name, channel in self._catalogue.channels.items():
            paths[channel.path] = {"get": self._channel(name, channel)}
        return {
            "openapi": "3.1.0",
            "info": {
                "title": "PAMSPEC memory service",
                "version": "0.1.0",
                "description": "Persistent memory for agents. Every operation is one JSON document with one answer.",
            },
            "paths": paths,
            "webhooks": {"delivery": {"post": self._delivery()}},
            "components": {
                "schemas": self._components.collected(),
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{"key": []}],
        }

    def _delivery(self) -> Json:
        """What a subscription over a webhook posts to its endpoint."""
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        return {
            "operationId": "webhook_delivery",
            "summary": "Frames of a subscription, signed as Standard Webhooks describes.",
            "tags": ["webhooks"],
            "security": [],
            "parameters": [
                {"name": name, "in": "header", "required": True, "schema": {"type": "string"}} for name in names
            ],
            "requestBody": _json_body(self._components.use("pamspec:schema:webhook-delivery")),
            "responses": {
                "2XX": {"description": "The frames are safe; the next ones may come."},
                "410": {"description": "Send no more: the subscription closes."},
                "default": {"description": "Send them again later."},
            },
        }

    def _operation(self, name: str, operation: Operation) -> Json:
        described: Json = {"operationId": name, "summary": operation.summary, "tags": ["operations"]}
        parameters: list[Json] = [_header_parameter("Idempotency-Key")] if operation.writes else []
        if operation.streams == "request":
            parameters += [self._parameter(name, field, "query") for field in self._members(name)]
            described["requestBody"] = {"required": True, "content": _lines(self._components.use(_LINE))}
        else:
            described["requestBody"] = _json_body(self._components.use(f"pamspec:operation:{name}:request"))
        described["responses"] = self._responses(name, operation)
        return {**described, "parameters": parameters} if parameters else described

    def _members(self, operation: str) -> list[str]:
        """The members of a request: the common ones that name it, and its own."""
        return ["scope_id", "operation_id", *self._schemas[f"pamspec:operation:{operation}:request"]["properties"]]

    def _convenience(self, name: str, operation: Operation, convenience: Convenience) -> Json:
        in_path = _path_parameters(convenience.path)
        described: Json = {
            "operationId": f"{name}_{convenience.method.lower()}_{convenience.path.strip('/').replace('/', '_')}",
            "summary": operation.summary,
            "description": f"Another door to the operation {name}.",
            "tags": ["conveniences"],
            "parameters": [self._parameter(name, field, "path") for field in in_path]
            + [self._parameter(name, field, "query") for field in convenience.query],
            "responses": self._responses(name, operation),
        }
        described["operationId"] = described["operationId"].replace("{", "").replace("}", "")
        if convenience.method in ("POST", "PATCH"):
            described["requestBody"] = _json_body(self._body_without(name, in_path))
        return described

    def _body_without(self, operation: str, fields: list[str]) -> Json:
        identifier = f"pamspec:operation:{operation}:request"
        if not fields:
            return self._components.use(identifier)
        body: Json = self._components.rewrite(self._schemas[identifier], identifier)
        body["required"] = [field for field in body.get("required", []) if field not in fields]
        return body

    def _parameter(self, operation: str, field: str, place: str) -> Json:
        reference = request_member(self._schemas, operation, field)
        identifier = reference.partition("#")[0]
        described: Json = {"name": field, "in": place}
        if place == "path" or field in self._schemas[f"pamspec:operation:{operation}:request"].get("required", []):
            described["required"] = True
        return {**described, "schema": self._components.rewrite(resolve(self._schemas, reference), identifier)}

    def _channel(self, name: str, channel: Channel) -> Json:
        described: Json = {
            "operationId": f"channel_{name}",
            "summary": channel.summary,
            "tags": ["channels"],
            "parameters": [self._parameter("poll", field, "path") for field in _path_parameters(channel.path)],
            "responses": self._error_responses(channel.errors),
        }
        frame = self._components.use("pamspec:schema:frame")
        if name == "sse":
            described["responses"]["200"] = {
                "description": "Frames, until the channel ends.",
                "content": {"text/event-stream": {"schema": {"type": "string"}, "x-frame": frame}},
            }
        else:
            described["responses"]["101"] = {"description": "Frames as messages, until the channel ends."}
        if channel.resume is not None:
            described["parameters"].append(_header_parameter(channel.resume))
        described["responses"] = dict(sorted(described["responses"].items()))
        return described

    def _responses(self, name: str, operation: Operation) -> Json:
        content = self._components.use(f"pamspec:operation:{name}:answer")
        answer: Json = {"description": "The answer.", **_json_content(content)}
        if operation.streams == "answer":
            answer["content"] = _lines(content)
        if operation.headers:
            answer["headers"] = {header: self._header(header) for header in operation.headers}
        return {str(operation.status): answer, **self._error_responses(operation.errors)}

    def _error_responses(self, codes: list[str]) -> Json:
        by_status: dict[int, list[str]] = {}
        for code in [*self._catalogue.common_errors, *codes]:
            for status in self._errors[code].statuses():
                by_status.setdefault(status, []).append(code)
        error = self._components.use("pamspec:schema:error")
        responses: Json = {}
        for status, names in sorted(by_status.items()):
            response: Json = {"description": f"Refused: {', '.join(names)}.", **_json_content(error)}
            if status in (429, 503):
                response["headers"] = {"Retry-After": self._header("Retry-After")}
            responses[str(status)] = response
        return responses

    def _header(self, name: str) -> Json:
        return {"description": self._catalogue.headers[name], "schema": {"type": "string"}}


def _header_parameter(name: str) -> Json:
    return {"name": name, "in": "header", **_REQUEST_HEADERS[name]}


def _json_content(schema: Mapping[str, Any]) -> Json:
    return {"content": {"application/json": {"schema": dict(schema)}}}


def _lines(schema: Mapping[str, Any]) -> Json:
    """Lines of JSON of any number, each of that schema."""
    return {MEDIA_TYPE: {"schema": {"type": "string"}, "x-line": dict(schema)}}


def _json_body(schema: Mapping[str, Any]) -> Json:
    return {"required": True, **_json_content(schema)}


def _path_parameters(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]
