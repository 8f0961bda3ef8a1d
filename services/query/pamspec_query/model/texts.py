"""The text of a version, as a reranker reads it."""

from __future__ import annotations

from pamspec_common.analysis import texts_of

MAX_RERANKED = 4000
"""So many characters of a version are sent to a reranker."""


def text_of(content: bytes | None) -> str:
    """Every string of a content in the order of the document, names left out; the beginning alone of a long one."""
    return "" if content is None else "\n".join(texts_of(content))[:MAX_RERANKED]
