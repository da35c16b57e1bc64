"""The order of frames: what the next frame must say. Writer and verifier share it, so they cannot disagree.

In go frames (or their headers and leaf hashes) in order; out come the next number, event number and link, and the root
of now or of one of the last `MAX_AFTERMATH` moments. No files here.
"""

from __future__ import annotations

from collections import deque

from supervisor.errors import LogError
from supervisor.log.frames import MAX_AFTERMATH, Frame, FrameType, Header, bad_frame, seal_payload, sha256_text
from supervisor.log.merkle import MerkleTree, State, root_of
from supervisor.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A log up to one moment: what a signed checkpoint says, and what ``completion.json`` calls ``log``.

    Attributes:
        root: RFC 6962 root over the first ``frames`` frames, ``sha256:…``.
    """

    frames: int
    events: int
    root: str


class Chain:
    """Where a log stands.

    Attributes:
        frames, events: how many there are.
        link: what the next frame must carry; None before frame 0 when the manifest is not known.
        last_kernel: number of the last kernel slab, -1 without one.
    """

    __slots__ = ("_recent", "_tree", "events", "frames", "last_kernel", "link")

    def __init__(self, link: bytes | None = None) -> None:
        """Begin before frame 0."""
        self.frames = 0
        self.events = 0
        self.link = link
        self.last_kernel = -1
        self._tree = MerkleTree()
        # The record, the seal and the moment before the first of them come on top.
        self._recent: deque[State] = deque([self._tree.state()], maxlen=MAX_AFTERMATH + 3)

    def advance(self, frame_type: int, count: int, leaf: bytes) -> None:
        """Take in a frame that was checked or made here."""
        if frame_type == FrameType.KERNEL:
            self.last_kernel = self.frames
        self.frames += 1
        self.events += count
        self.link = leaf
        self._tree.append(leaf)
        self._recent.append(self._tree.state())

    def root(self) -> bytes:
        """Give the root over all frames so far."""
        return self._tree.root()

    def root_at(self, frames: int) -> bytes | None:
        """Give the root over the first ``frames`` frames; None when that moment is yet to come or too long ago."""
        index = frames - self._recent[0].size
        return root_of(self._recent[index]) if 0 <= index < len(self._recent) else None

    def checkpoint(self) -> Checkpoint:
        """Say where the log stands now."""
        return Checkpoint(frames=self.frames, events=self.events, root=sha256_text(self.root()))

    def seal_payload(self, frames: int) -> bytes:
        """Give what a seal in the place of frame ``frames`` must say; all frames from there on hold no events."""
        return seal_payload(frames=frames, events=self.events, root=self.root_at(frames) or b"")

    def check_evidence(self, frames: int, root: str, *, record: int) -> str | None:
        """Check a claim that the evidence ended after ``frames`` frames with ``root``, against law 7.

        Args:
            frames: how many frames the evidence is said to have.
            root: the root it is said to have, ``sha256:…``.
            record: number of the frame that claims it.

        Returns:
            What is wrong with it as ``expected X, got Y``, or None.
        """
        if frames <= self.last_kernel:
            return f"expected no kernel slab after the evidence of {frames} frames, got frame {self.last_kernel}"
        found = self.root_at(frames)
        if found is None or not record - MAX_AFTERMATH <= frames <= record:
            return f"expected evidence that ends in the {MAX_AFTERMATH} frames before this one, got {frames} frames"
        if sha256_text(found) != root:
            return f"expected the evidence root {sha256_text(found)}, got {root[:100]}"
        return None

    def check_place(self, header: Header) -> None:
        """Check that a frame belongs here, its link left aside.

        Raises:
            LogError: a frame is missing, repeated or moved, or its event numbers do not follow.
        """
        number = self.frames
        if header.number != number:
            raise bad_frame(number, f"expected frame {number}, got frame {header.number}: frames are missing or moved")
        if header.first_event != self.events:
            raise bad_frame(number, f"expected first event {self.events}, got {header.first_event}")
        counts = {FrameType.JSON: 1, FrameType.SEAL: 0}
        if header.events != counts.get(FrameType(header.type), header.events):
            raise bad_frame(number, f"expected {counts[FrameType(header.type)]} events, got {header.events}")

    def broken_link(self, frame: Frame, following: Frame | None) -> LogError:
        """Tell which of two frames is bad when ``frame`` does not carry the leaf hash of the one before it.

        The frame after both is the witness: if it vouches for ``frame``, the one before was changed. A seal has no
        frame after it, but says the root: if that is right, the frames before are right.
        """
        number, link = frame.header.number, self.link or b""
        if frame.header.type == FrameType.SEAL:
            vouched = frame.payload != self.seal_payload(number)
        else:
            vouched = following is None or following.header.link == frame.leaf
        got, expected = (link, frame.header.link) if vouched else (frame.header.link, link)
        what = f"hash {sha256_text(expected)} (frame {number} says so)" if vouched else f"link {sha256_text(expected)}"
        bad = number - 1 if vouched else number
        return bad_frame(bad, f"expected {what}, got {sha256_text(got)}: it was changed or replaced")
