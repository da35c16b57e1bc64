"""The Merkle tree of RFC 6962 over the frames of a log, grown one leaf at a time.

In go leaf hashes in order, out comes the root, at any moment. The state is one hash for each set bit of the size: a log
of a billion frames needs 30. `State` is enough to give the root of an earlier moment again. Inclusion and consistency
proofs are made from the same leaf hashes in one pass (`Pathfinder`); checking them needs no log.

Laws (RFC 6962 section 2.1, SHA-256):
    root of nothing      = H()
    leaf hash of d       = H(0x00 || d)
    node hash of l and r = H(0x01 || l || r)
    root of n > 1 leaves = node(root of the first k, root of the rest), k the largest power of two below n
"""

from __future__ import annotations

from collections.abc import Sequence
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


class Pathfinder:
    """Keeps what the proof about one leaf needs while a tree grows: a hash a level, however many leaves come.

    From it come inclusion proofs (RFC 6962 section 2.1.1) and consistency proofs (section 2.1.2), which are the proof
    of the last whole subtree of the smaller tree.
    """

    __slots__ = ("_index", "_level", "_node", "_peaks", "_siblings", "_size")

    def __init__(self, index: int, *, level: int = 0) -> None:
        """Begin with no leaf.

        Args:
            index: of the leaf.
            level: prove the whole subtree of that height around it instead; 0 is the leaf itself.
        """
        self._index = index
        self._level = level
        self._node = b""
        self._siblings: dict[int, bytes] = {}
        self._peaks: list[bytes] = []
        self._size = 0

    @classmethod
    def of_next(cls, state: State) -> Pathfinder:
        """Begin to look for the proof of the leaf that comes next, in a tree that already has others."""
        finder = cls(state.size)
        finder._size, finder._peaks = state.size, list(state.peaks)
        finder._siblings = dict(zip(_levels(state.size), state.peaks, strict=True))
        return finder

    @classmethod
    def from_size(cls, size: int) -> Pathfinder:
        """Begin to look for the proof that a later tree extends the one over the first ``size`` leaves, at least 1."""
        return cls(size - 1, level=(size & -size).bit_length() - 1)

    def append(self, leaf: bytes) -> None:
        """Add the next leaf by its hash."""
        level, place, node = 0, self._size, leaf
        self._keep(level, place, node)
        while place & 1:
            node = node_hash(self._peaks.pop(), node)
            level, place = level + 1, place >> 1
            self._keep(level, place, node)
        self._peaks.append(node)
        self._size += 1

    def inclusion(self) -> tuple[bytes, ...]:
        """Give the audit path of the leaf (or subtree) in the tree as it is now; the leaf must be in it."""
        offset = 0
        for place, peak_level in enumerate(_levels(self._size)):
            offset += 1 << peak_level
            if self._index < offset:
                right = self._peaks[place + 1 :]
                bagged = (root_of(State(0, tuple(right))),) if right else ()
                siblings = (self._siblings[level] for level in range(self._level, peak_level))
                return (*siblings, *bagged, *reversed(self._peaks[:place]))
        message = f"leaf {self._index}: expected it in the tree, got a tree of {self._size}"
        raise ValueError(message)

    def consistency(self) -> tuple[bytes, ...]:
        """Give the proof that the tree as it is now extends the one of `from_size`."""
        first = self._index + 1
        if first == self._size:
            return ()
        return self.inclusion() if first == 1 << self._level else (self._node, *self.inclusion())

    def _keep(self, level: int, place: int, node: bytes) -> None:
        if level < self._level:
            return
        wanted = self._index >> level
        if place == wanted ^ 1:
            self._siblings[level] = node
        elif place == wanted and level == self._level:
            self._node = node


def _levels(size: int) -> list[int]:
    """Give the heights of the whole subtrees of a tree, from the largest to the smallest."""
    return [level for level in reversed(range(size.bit_length())) if size >> level & 1]


def root_from_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """Follow an audit path up (RFC 9162 section 2.1.3.2).

    Returns:
        The root that a tree of ``size`` leaves with this leaf at ``index`` has, or None when no tree has such a path.
    """
    if not 0 <= index < size:
        return None
    place, last, root = index, size - 1, leaf
    for sibling in path:
        if not last:
            return None
        if place & 1 or place == last:
            root = node_hash(sibling, root)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            root = node_hash(root, sibling)
        place, last = place >> 1, last >> 1
    return None if last else root


def roots_from_consistency(
    first: int, second: int, first_root: bytes, path: Sequence[bytes]
) -> tuple[bytes, bytes] | None:
    """Follow a consistency proof up (RFC 9162 section 2.1.4.2), from ``first`` leaves to ``second``.

    Returns:
        The two roots that it leads to, both of which must be the ones that are known; None when no trees have it.
    """
    if first == second:
        return None if path else (first_root, first_root)
    if not 0 < first < second or not path:
        return None
    nodes = (first_root, *path) if first & (first - 1) == 0 else tuple(path)
    place, last = first - 1, second - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    earlier = later = nodes[0]
    for node in nodes[1:]:
        if not last:
            return None
        if place & 1 or place == last:
            earlier, later = node_hash(node, earlier), node_hash(node, later)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            later = node_hash(later, node)
        place, last = place >> 1, last >> 1
    return None if last else (earlier, later)
