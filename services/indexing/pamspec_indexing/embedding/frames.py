"""The language between the service and its embedding process: frames over a pair of pipes.

A frame is its length in four bytes and a MessagePack document. A request: {id, kind, texts}; an answer: {id, vectors},
the float32 numbers of all rows in the order of the machine, or {id, error}.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import msgspec

from pamspec_indexing.embedding.embedder import Kind

LENGTH = struct.Struct("<I")
MAX_FRAME = 64 * 1024 * 1024


class Request(msgspec.Struct):
    """Texts to embed."""

    id: int
    kind: Kind
    texts: list[str]


class Reply(msgspec.Struct):
    """Their vectors one after another, or why there are none."""

    id: int
    vectors: bytes = b""
    error: str | None = None


def framed(document: Request | Reply) -> bytes:
    """A frame."""
    body = msgspec.msgpack.encode(document)
    return LENGTH.pack(len(body)) + body


def read_request(stream: BinaryIO) -> Request | None:
    """The next request; None at the end of the stream."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    body = stream.read(LENGTH.unpack(head)[0])
    return msgspec.msgpack.decode(body, type=Request)
