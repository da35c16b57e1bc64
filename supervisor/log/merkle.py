"""The Merkle tree of RFC 6962 over the frames of a log, grown one leaf at a time.

In go leaf hashes in order, out comes the root, at any moment. The state is one hash for each set bit of the size: a log
of a billion frames needs 30. `State` is enough to give the root of an earlier moment again. Inclusion and consistency
proofs (RFC 6962 section 2.1) are made from the same leaf hashes; this module is their place.

Laws (RFC 6962 section 2.1, SHA-256):
    root of nothing      = H()
    leaf hash of d       = H(0x00 || d)
    node hash of l and r = H(0x01 || l || r)
    root of n > 1 leaves = node(root of the first k, root of the rest), k the largest power of two below n
"""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

LEAF_PREFIX = b"\x00"
NODE_PREFIX = b"\x01"


class State(NamedTuple):
    """A tree at one moment: its size, and the roots of its whole subtrees from the largest to the smallest."""

    size: int
    peaks: tuple[bytes, ...]


def leaf_hash(*parts: bytes | memoryview) -> bytes:
    """Hash one leaf, which may be given in parts so that nothing has to be joined."""
    digest = sha256(LEAF_PREFIX)
    for part in parts:
        digest.update(part)
    return digest.digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash two subtrees into one."""
    return sha256(NODE_PREFIX + left + right).digest()


def root_of(state: State) -> bytes:
    """Give the root of a tree as it was at one moment."""
    if not state.peaks:
        return sha256().digest()
    root = state.peaks[-1]
    for peak in reversed(state.peaks[:-1]):
        root = node_hash(peak, root)
    return root


class MerkleTree:
    """A tree that only grows. Appending costs one node hash on average, the root one for each set bit of the size."""

    __slots__ = ("_peaks", "_size")

    def __init__(self) -> None:
        """Begin with no leaf."""
        self._size = 0
        self._peaks: list[bytes] = []

    @property
    def size(self) -> int:
        """How many leaves there are."""
        return self._size

    def append(self, leaf: bytes) -> None:
        """Add a leaf by its hash: as in adding one to a binary number, equal subtrees are joined."""
        carry, size, peaks = leaf, self._size, self._peaks
        while size & 1:
            carry = node_hash(peaks.pop(), carry)
            size >>= 1
        peaks.append(carry)
        self._size += 1

    def state(self) -> State:
        """Give what is needed to know the root of this moment later."""
        return State(self._size, tuple(self._peaks))

    def root(self) -> bytes:
        """Give the root over all leaves so far."""
        return root_of(self.state())
