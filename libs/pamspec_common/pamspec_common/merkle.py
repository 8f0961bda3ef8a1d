"""Merkle trees as RFC 9162 defines them (section 2.1), grown by appending and proved from stored nodes.

Pure. The leaf of an entry is the hash of its chain hash, so a root stands for the chain up to its size. Invariant: a
`Frontier` holds the roots of the complete subtrees that its size is made of, nothing else, and gives the same root as
a tree built of all leaves at once. Nodes of every eighth level are worth keeping: with them a proof over any size needs
at most 256 hashes of each such level, and 256 leaves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

HASH_BYTES = 32
STRIDE = 8
"""Every so many levels nodes are kept."""
EMPTY_ROOT = hashlib.sha256(b"").digest()


class Node(NamedTuple):
    """The root of the complete subtree over leaves `position << height` up to, without, `(position + 1) << height`."""

    height: int
    position: int


class Span(NamedTuple):
    """Leaves from `low` up to, without, `high`."""

    low: int
    high: int


def leaf_hash(data: bytes) -> bytes:
    """The leaf of an entry."""
    return hashlib.sha256(b"\x00" + data).digest()


def leaf_hashes(data: Iterable[bytes]) -> list[bytes]:
    """The leaves of many entries."""
    sha256 = hashlib.sha256
    return [sha256(b"\x00" + item).digest() for item in data]


def node_hash(left: bytes, right: bytes) -> bytes:
    """The node above two others."""
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass
class Frontier:
    """A tree that grows: how many leaves it has, and the root of each complete subtree at its right edge."""

    size: int = 0
    peaks: dict[int, bytes] = field(default_factory=dict)
    """Height -> root, for each bit of `size` that is set."""

    @classmethod
    def of_bytes(cls, size: int, packed: bytes) -> Frontier:
        """The frontier that `to_bytes` wrote; ValueError when it can't be one of this size."""
        heights = [height for height in range(size.bit_length()) if size >> height & 1]
        if len(packed) != HASH_BYTES * len(heights):
            raise ValueError("the frontier does not fit its size")
        parts = (packed[at : at + HASH_BYTES] for at in range(0, len(packed), HASH_BYTES))
        return cls(size, dict(zip(heights, parts, strict=True)))

    def to_bytes(self) -> bytes:
        """The roots, lowest first, joined."""
        return b"".join(self.peaks[height] for height in sorted(self.peaks))

    def extend(self, leaves: Sequence[bytes]) -> dict[Node, bytes]:
        """Append leaf hashes; the nodes worth keeping that became complete."""
        kept: dict[Node, bytes] = {}
        level, position, height = list(leaves), self.size, 0
        sha256 = hashlib.sha256
        while level:
            if height and height % STRIDE == 0:
                kept.update((Node(height, position + offset), root) for offset, root in enumerate(level))
            if position & 1:
                level.insert(0, self.peaks.pop(height))
            if len(level) & 1:
                self.peaks[height] = level.pop()
            pairs = iter(level)
            level = [sha256(b"\x01" + left + right).digest() for left, right in zip(pairs, pairs, strict=True)]
            position, height = position >> 1, height + 1
        self.size += len(leaves)
        return kept

    def graft(self, other: Frontier) -> None:
        """Append the leaves of another tree, which may be larger than a subtree that begins here.

        Nothing is kept of it. Where its subtrees do not fit behind this size, the tree of a ledger with gaps results,
        which is nobody's.
        """
        for height in sorted(other.peaks, reverse=True):
            root, at = other.peaks[height], height
            while at in self.peaks:
                root, at = node_hash(self.peaks.pop(at), root), at + 1
            self.peaks[at] = root
        self.size += other.size

    def copy(self) -> Frontier:
        """The same, to grow apart."""
        return Frontier(self.size, dict(self.peaks))

    def root(self) -> bytes:
        """The root of all leaves."""
        found: bytes | None = None
        for height in sorted(self.peaks):
            found = self.peaks[height] if found is None else node_hash(self.peaks[height], found)
        return EMPTY_ROOT if found is None else found


def inclusion_path(index: int, size: int) -> list[Span]:
    """Whose roots prove that leaf `index` is in the tree of `size` leaves, from the leaf upwards (PATH, 2.1.3.1).

    ValueError unless 0 <= index < size.
    """
    if not 0 <= index < size:
        raise ValueError("no such leaf")
    path: list[Span] = []
    low, high = 0, size
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            path.append(Span(middle, high))
            high = middle
        else:
            path.append(Span(low, middle))
            low = middle
    return path[::-1]


def consistency_path(first: int, second: int) -> list[Span]:
    """Whose roots prove that the tree of `first` leaves is the beginning of that of `second` (PROOF, 2.1.4.1).

    ValueError unless 0 < first <= second; nothing is needed where they are equal.
    """
    if not 0 < first <= second:
        raise ValueError("the first tree is not empty and not larger than the second")
    path: list[Span] = []
    low, high, whole = 0, second, True
    while first != high:
        middle = low + _split(high - low)
        if first <= middle:
            path.append(Span(middle, high))
            high = middle
        else:
            path.append(Span(low, middle))
            low, whole = middle, False
    if not whole:
        path.append(Span(low, high))
    return path[::-1]


def needed(spans: Iterable[Span]) -> dict[int, list[Span]]:
    """What must be read to have the roots of these spans: height -> ranges of indexes of kept nodes, 0 for leaves."""
    found: dict[int, list[Span]] = {}
    for span in spans:
        for node in _subtrees(span):
            height = node.height - node.height % STRIDE
            first = node.position << (node.height - height)
            found.setdefault(height, []).append(Span(first, first + (1 << node.height - height)))
    return found


def span_root(span: Span, nodes: Mapping[Node, bytes]) -> bytes:
    """The root of the leaves of a span that a path names; KeyError names a node that is not there."""
    found: bytes | None = None
    for node in reversed(_subtrees(span)):
        root = _subtree_root(node, nodes)
        found = root if found is None else node_hash(root, found)
    return EMPTY_ROOT if found is None else found


def includes(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether the path proves that this leaf stands at `index` in the tree of that root (2.1.3.2)."""
    if not 0 <= index < size:
        return False
    number, last, found = index, size - 1, leaf
    for item in path:
        if last == 0:
            return False
        if number & 1 or number == last:
            found = node_hash(item, found)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            found = node_hash(found, item)
        number, last = number >> 1, last >> 1
    return last == 0 and found == root


def extends(first: int, second: int, path: Sequence[bytes], first_root: bytes, second_root: bytes) -> bool:
    """Whether the path proves that the tree of `first` leaves is the beginning of that of `second` (2.1.4.2)."""
    if not 0 < first <= second:
        return False
    if first == second:
        return not path and first_root == second_root
    hashes = list(path) if first & (first - 1) else [first_root, *path]
    if not hashes:
        return False
    number, last = first - 1, second - 1
    while number & 1:
        number, last = number >> 1, last >> 1
    old = new = hashes[0]
    for item in hashes[1:]:
        if last == 0:
            return False
        if number & 1 or number == last:
            old, new = node_hash(item, old), node_hash(item, new)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            new = node_hash(new, item)
        number, last = number >> 1, last >> 1
    return last == 0 and old == first_root and new == second_root


def _split(count: int) -> int:
    """The largest power of two that is smaller than `count`, which is at least 2."""
    return 1 << (count - 1).bit_length() - 1


def _subtrees(span: Span) -> list[Node]:
    """The complete subtrees that a span of a path is made of, from the left: it begins where its largest may begin."""
    found: list[Node] = []
    low = span.low
    while low < span.high:
        height = (span.high - low).bit_length() - 1
        found.append(Node(height, low >> height))
        low += 1 << height
    return found


def _subtree_root(node: Node, nodes: Mapping[Node, bytes]) -> bytes:
    height = node.height - node.height % STRIDE
    first = node.position << (node.height - height)
    level = [nodes[Node(height, index)] for index in range(first, first + (1 << node.height - height))]
    while len(level) > 1:
        pairs = iter(level)
        level = [node_hash(left, right) for left, right in zip(pairs, pairs, strict=True)]
    return level[0]
