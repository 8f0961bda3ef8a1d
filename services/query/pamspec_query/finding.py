"""What ranked queries ask beside the store: vectors of texts, and another opinion on the best candidates.

Invariant: neither may hold an answer up beyond its bound. Without a vector there is no answer; without a reranker the
order stays, and the answer says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import orjson

from pamspec_common.calls import Call
from pamspec_common.errors import ServiceUnavailable, told_error
from pamspec_common.peers import Peer
from pamspec_common.principal import TokenSigner, service_principal
from pamspec_common.strict_json import dumps
from pamspec_query.settings import Settings


class Embedder(Protocol):
    """Makes the vector of a text that is looked for."""

    async def embed(self, tenant_id: str, scope_id: str, embedding_space_id: str, text: str) -> list[float]:
        """The vector of a query in a space; EmbeddingSpaceMismatch where the space takes no texts."""


class Reranker(Protocol):
    """Scores documents against a text."""

    model: str

    async def scores(self, text: str, documents: Sequence[str]) -> list[float]:
        """A score for each document; RerankFailed, or TimeoutError, where there is none."""

    async def close(self) -> None:
        """Nothing is asked any more."""


class RerankFailed(Exception):
    """The reranker gave no scores that could be used."""


class PeerEmbedder:
    """The indexing service, which knows the models of the spaces."""

    def __init__(self, indexing: Peer, signer: TokenSigner) -> None:
        self._indexing, self._signer = indexing, signer

    async def embed(self, tenant_id: str, scope_id: str, embedding_space_id: str, text: str) -> list[float]:
        """The vector of a query in a space; the refusal of the indexing service otherwise."""
        token = self._signer.sign(service_principal("query", tenant_id))
        document = {"scope_id": scope_id, "embedding_space_id": embedding_space_id, "text": text}
        told = await self._indexing.call(Call("embed_text", token, dumps(document)))
        if told.status >= 400:
            raise told_error(told.status, told.body)
        vector: list[float] = orjson.loads(told.body)["vector"]
        return vector


class HttpReranker:
    """An endpoint as several servers offer it: `{model, query, documents}`, answered by
    `{results: [{index, relevance_score}]}`.
    """

    def __init__(self, url: str, model: str, key: str | None, timeout_ms: int) -> None:
        self.model = model
        self._url, self._timeout_s = url, timeout_ms / 1000
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def of(cls, settings: Settings) -> HttpReranker:
        """The endpoint of the settings."""
        assert settings.rerank_url is not None
        key = None if settings.rerank_key is None else settings.rerank_key.get_secret_value()
        return cls(settings.rerank_url, settings.rerank_model, key, settings.rerank_timeout_ms)

    async def scores(self, text: str, documents: Sequence[str]) -> list[float]:
        """A score for each document; RerankFailed for any other answer, TimeoutError for none in time."""
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers, cookie_jar=aiohttp.DummyCookieJar())
        asked = {"model": self.model, "query": text, "documents": list(documents), "top_n": len(documents)}
        try:
            async with asyncio.timeout(self._timeout_s), self._session.post(self._url, json=asked) as response:
                if response.status != 200:
                    raise RerankFailed(f"the reranker answered {response.status}")
                return _scores(orjson.loads(await response.read()), len(documents))
        except (aiohttp.ClientError, OSError, orjson.JSONDecodeError) as error:
            raise RerankFailed(f"the reranker did not answer: {type(error).__name__}") from error

    async def close(self) -> None:
        """Leave the endpoint."""
        if self._session is not None:
            await self._session.close()


def _scores(document: Any, wanted: int) -> list[float]:
    """The scores by document; RerankFailed unless each document has one."""
    try:
        found = {one["index"]: float(one["relevance_score"]) for one in document["results"]}
        scores = [found[index] for index in range(wanted)]
    except (KeyError, TypeError, ValueError):
        raise RerankFailed("the reranker's answer has another shape") from None
    if not all(abs(score) < 1e9 for score in scores):
        raise RerankFailed("the reranker's scores are no numbers")
    return scores


@dataclass(frozen=True, slots=True)
class Finding:
    """Both; None where the service has none."""

    embedder: Embedder | None = None
    reranker: Reranker | None = None

    async def close(self) -> None:
        """Leave what is asked."""
        if self.reranker is not None:
            await self.reranker.close()

    async def vector(self, tenant_id: str, scope_id: str, embedding_space_id: str, text: str) -> list[float]:
        """The vector of a text; ServiceUnavailable where nothing makes any."""
        if self.embedder is None:
            raise ServiceUnavailable(
                "No embedder is in reach; send query.vector, or leave vectors out with the modes of hybrid.",
                details={"reason": "embedder_unavailable"},
            )
        return await self.embedder.embed(tenant_id, scope_id, embedding_space_id, text)


NO_FINDING = Finding()
