"""The tree is RFC 6962's."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from supervisor.log.merkle import (
    MerkleTree,
    Pathfinder,
    leaf_hash,
    node_hash,
    root_from_inclusion,
    root_of,
    roots_from_consistency,
)

LEAVES = ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)


def test_the_roots_are_those_of_certificate_transparency() -> None:
    """The published test leaves give the published roots, at every size."""
    tree = MerkleTree()
    assert tree.root() == sha256().digest()
    for leaf, root in zip(LEAVES, ROOTS, strict=True):
        tree.append(leaf_hash(bytes.fromhex(leaf)))
        assert tree.root().hex() == root


def by_definition(leaves: list[bytes]) -> bytes:
    """Compute the root as RFC 6962 section 2.1 words it."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return node_hash(by_definition(leaves[:split]), by_definition(leaves[split:]))


@given(size=st.integers(1, 200), earlier=st.integers(1, 200))
def test_growing_gives_what_the_definition_gives(size: int, earlier: int) -> None:
    """The incremental root is the recursive one, and a kept state still gives the root of its moment."""
    leaves = [leaf_hash(bytes([index % 256])) for index in range(size)]
    tree, kept = MerkleTree(), None
    for leaf in leaves:
        tree.append(leaf)
        if tree.size == min(earlier, size):
            kept = tree.state()
    assert tree.root() == by_definition(leaves)
    assert kept is not None
    assert root_of(kept) == by_definition(leaves[: kept.size])


def test_a_leaf_in_parts_is_the_same_leaf() -> None:
    """Hashing header and payload apart is hashing them together."""
    assert leaf_hash(b"ab", b"c") == leaf_hash(b"abc") != leaf_hash(b"ab")


def grown(size: int, finder: Pathfinder) -> tuple[list[bytes], bytes]:
    """Grow a tree of that size before the eyes of a pathfinder; gives leaves and root."""
    leaves = [leaf_hash(index.to_bytes(4, "big")) for index in range(size)]
    for leaf in leaves:
        finder.append(leaf)
    return leaves, by_definition(leaves)


def path_by_definition(index: int, leaves: list[bytes]) -> list[bytes]:
    """Compute an audit path as RFC 6962 section 2.1.1 words it."""
    if len(leaves) == 1:
        return []
    split = 1 << (len(leaves) - 1).bit_length() - 1
    if index < split:
        return [*path_by_definition(index, leaves[:split]), by_definition(leaves[split:])]
    return [*path_by_definition(index - split, leaves[split:]), by_definition(leaves[:split])]


def proof_by_definition(first: int, leaves: list[bytes], *, whole: bool = True) -> list[bytes]:
    """Compute a consistency proof as RFC 6962 section 2.1.2 words it."""
    if first == len(leaves):
        return [] if whole else [by_definition(leaves)]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    if first <= split:
        return [*proof_by_definition(first, leaves[:split], whole=whole), by_definition(leaves[split:])]
    return [*proof_by_definition(first - split, leaves[split:], whole=False), by_definition(leaves[:split])]


@given(data=st.data(), size=st.integers(1, 140))
def test_an_inclusion_proof_leads_to_the_root_and_no_other_does(data: st.DataObject, size: int) -> None:
    """The path found in one pass is the definition's; with another leaf, place, size or node it leads elsewhere."""
    index = data.draw(st.integers(0, size - 1))
    finder = Pathfinder(index)
    leaves, root = grown(size, finder)
    path = finder.inclusion()
    assert list(path) == path_by_definition(index, leaves)
    assert root_from_inclusion(leaves[index], index, size, path) == root
    other = data.draw(st.integers(0, size - 1).filter(lambda one: one != index)) if size > 1 else size
    assert root_from_inclusion(leaves[index], other, size, path) != root
    assert root_from_inclusion(b"x" * 32, index, size, path) != root
    assert root_from_inclusion(leaves[index], index, size, (*path, root)) is None
    assert root_from_inclusion(leaves[index], index, size, path[:-1]) != root or not path


@given(data=st.data(), size=st.integers(1, 140))
def test_a_consistency_proof_leads_to_both_roots(data: st.DataObject, size: int) -> None:
    """The proof found in one pass is the definition's and leads to both roots; a tree that forgot a leaf has none."""
    first = data.draw(st.integers(1, size))
    finder = Pathfinder.from_size(first)
    leaves, root = grown(size, finder)
    proof, first_root = finder.consistency(), by_definition(leaves[:first])
    assert list(proof) == proof_by_definition(first, leaves)
    assert roots_from_consistency(first, size, first_root, proof) == (first_root, root)
    forged = by_definition([b"f" * 32, *leaves[1:first]])
    assert roots_from_consistency(first, size, forged, proof) != (forged, root)
    if proof:
        assert roots_from_consistency(first, size, first_root, proof[:-1]) != (first_root, root)
        assert roots_from_consistency(first, size, first_root, (*proof, root)) is None
