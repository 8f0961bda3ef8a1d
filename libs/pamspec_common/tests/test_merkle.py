"""Trees grown, proved and checked, against the definitions of RFC 9162 written out as they stand there."""

from __future__ import annotations

import hashlib
import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pamspec_common.merkle import (
    EMPTY_ROOT,
    STRIDE,
    Frontier,
    Node,
    consistency_path,
    extends,
    includes,
    inclusion_path,
    leaf_hashes,
    needed,
    span_root,
)


def mth(leaves: list[bytes]) -> bytes:
    """MTH of section 2.1.1, over leaf hashes."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return hashlib.sha256(b"\x01" + mth(leaves[:split]) + mth(leaves[split:])).digest()


def grown(leaves: list[bytes], seed: int = 0) -> tuple[Frontier, dict[Node, bytes]]:
    """A frontier grown in pieces of any length, with the leaves and the nodes that were kept."""
    frontier, nodes = Frontier(), {Node(0, index): leaf for index, leaf in enumerate(leaves)}
    pieces = random.Random(seed)
    while frontier.size < len(leaves):
        upto = frontier.size + pieces.randint(1, 700)
        nodes |= frontier.extend(leaves[frontier.size : upto])
        frontier = Frontier.of_bytes(frontier.size, frontier.to_bytes())
    return frontier, nodes


def random_leaves(count: int) -> list[bytes]:
    return leaf_hashes(os.urandom(8) for _ in range(count))


def test_an_empty_tree_has_the_hash_of_nothing() -> None:
    assert Frontier().root() == EMPTY_ROOT == mth([])


@given(st.integers(0, 3000), st.integers(0, 10))
def test_a_grown_tree_is_the_tree_of_all_leaves(size: int, seed: int) -> None:
    leaves = random_leaves(size)
    frontier, _ = grown(leaves, seed)
    assert frontier.size == size
    assert frontier.root() == mth(leaves)


@given(st.integers(0, 5), st.integers(0, 256))
def test_trees_of_segments_fit_together(whole: int, rest: int) -> None:
    leaves = random_leaves(whole * 256 + rest)
    joined = Frontier()
    for at in range(0, len(leaves), 256):
        segment, _ = grown(leaves[at : at + 256])
        before = joined.copy()
        joined.graft(segment)
        assert before.size == at, "a copy grows apart"
    assert (joined.size, joined.root()) == (len(leaves), mth(leaves))


def test_a_frontier_of_another_size_is_refused() -> None:
    frontier, _ = grown(random_leaves(7))
    with pytest.raises(ValueError, match="frontier"):
        Frontier.of_bytes(8, frontier.to_bytes())


@given(st.integers(1, 2500), st.data())
def test_inclusion_is_proved_from_kept_nodes_and_nothing_else(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    leaves = random_leaves(size)
    frontier, kept = grown(leaves)
    spans = inclusion_path(index, size)
    wanted = {Node(height, at) for height, ranges in needed(spans).items() for low, high in ranges
              for at in range(low, high)}  # fmt: skip
    assert all(node.height % STRIDE == 0 for node in wanted)
    path = [span_root(span, {node: kept[node] for node in wanted}) for span in spans]
    assert path == [mth(leaves[span.low : span.high]) for span in spans]
    assert includes(leaves[index], index, size, path, frontier.root())
    assert not includes(leaves[index], index, size, path, os.urandom(32))
    assert not includes(os.urandom(32), index, size, path, frontier.root())
    assert not includes(leaves[index], index, size, [*path, os.urandom(32)], frontier.root())
    assert not includes(leaves[index], index, size + size, path, frontier.root())
    if path:
        assert not includes(leaves[index], index, size, path[:-1], frontier.root())
    other = data.draw(st.integers(0, size - 1))
    assert other == index or not includes(leaves[index], other, size, path, frontier.root())


@given(st.integers(1, 2500), st.data())
def test_consistency_is_proved_from_kept_nodes(second: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, second))
    leaves = random_leaves(second)
    _, kept = grown(leaves)
    path = [span_root(span, kept) for span in consistency_path(first, second)]
    old, new = mth(leaves[:first]), mth(leaves)
    assert extends(first, second, path, old, new)
    assert first == second or not extends(first, second, path, old, os.urandom(32))
    assert not extends(first, second, path, os.urandom(32), new)
    assert not extends(first, second, [*path, os.urandom(32)], old, new)
    if path:
        assert not extends(first, second, path[:-1], old, new)


def test_few_hashes_prove_a_place_in_a_large_tree() -> None:
    size = 10_000_019
    for index in (0, 255, 256, 5_000_000, size - 1):
        reads = needed(inclusion_path(index, size))
        assert set(reads) <= {0, 8, 16}
        assert all(sum(high - low for low, high in ranges) <= 2 * 256 for ranges in reads.values())


@pytest.mark.parametrize(("index", "size"), [(-1, 3), (3, 3), (0, 0)])
def test_a_leaf_that_is_not_there_has_no_path(index: int, size: int) -> None:
    with pytest.raises(ValueError, match="no such leaf"):
        inclusion_path(index, size)
    assert not includes(b"", index, size, [], b"")


@pytest.mark.parametrize(("first", "second"), [(0, 3), (4, 3), (-1, 1)])
def test_trees_that_can_not_follow_have_no_path(first: int, second: int) -> None:
    with pytest.raises(ValueError, match="first tree"):
        consistency_path(first, second)
    assert not extends(first, second, [], b"", b"")
