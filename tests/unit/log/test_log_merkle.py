"""The tree is RFC 6962's."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from supervisor.log.merkle import MerkleTree, leaf_hash, node_hash, root_of

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
