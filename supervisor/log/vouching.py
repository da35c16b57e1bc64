"""What signatures say about a log, held against it while it is read: our own checkpoints and witnessed ones.

In go frames in order, each with the chain that it was added to; out comes the first contradiction. Nothing is read
twice, and one note is held at a time.

Laws:
    * A note speaks about the first ``size`` frames: their root must be the signed one.
    * Note N of ``log/checkpoints`` is told by the event ``checkpoint.signed`` number N, which carries its digest; only
      the note over the seal has no event. So none can be dropped, repeated, moved or added.
    * A witnessed note must be of the same key, and about frames that are still there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from supervisor.errors import LogError
from supervisor.events import CheckpointSigned
from supervisor.log.chain import Chain
from supervisor.log.notes import CutNoteError, Note, bad_note, check_note, read_notes


class Vouching:
    """Holds ``log/checkpoints`` to a log.

    Attributes:
        count: how many notes were found good.
        covered: how many frames the last of them covers.
        beyond: how many the last one tells of that was read, covered or not.
    """

    def __init__(self, notes: Path, *, origin: str, public: bytes) -> None:
        """Begin before frame 0."""
        self._notes: Iterator[Note] = read_notes(notes)
        self._origin, self._public = origin, public
        self._untold: deque[tuple[int, Note]] = deque()
        self._next: Note | None = None
        self._read = 0
        self.beyond = 0
        self._cut: CutNoteError | None = None
        self.count = 0
        self.covered = 0

    def begin(self) -> LogError | None:
        """Read the first note; gives what is wrong with it."""
        return self._advance()

    def take(self, chain: Chain, event: object) -> LogError | None:
        """Take in a frame that the chain was advanced by; gives the first contradiction.

        Args:
            chain: stands behind the frame.
            event: what the frame holds, if it is one event.
        """
        if isinstance(event, CheckpointSigned) and (problem := self._told(event)):
            return problem
        note = self._next
        if note is None or note.size != chain.frames:
            return None
        number = self._read - 1
        if note.root != (root := chain.root()):
            frames = f"frames {self.covered} to {note.size - 1}"
            message = (
                f"expected the root {note.root.hex()} over {note.size} frames, got {root.hex()}: {frames} were changed"
            )
            return bad_note(number, message)
        self._untold.append((number, note))
        self.count, self.covered = number + 1, note.size
        return self._advance()

    def tell_unsealed(self, chain: Chain) -> str:
        """Say how far the notes reach in a log that has no seal, and whether further than it does itself.

        Raises:
            LogError: a note that is left is none of ours.
        """
        told = f"signed checkpoints vouch for the first {self.covered} of them"
        while self._next is not None:
            if problem := self._advance():
                raise problem
        beyond = self.beyond
        if beyond > chain.frames:
            told += f" and tell of {beyond}, so at least {beyond - chain.frames} are lost"
        return told + (", the last one is half written" if self._cut else "")

    def finish(self, chain: Chain) -> LogError | None:
        """Check the end of a sealed log: its last note is over all of it."""
        if self._cut is not None:
            return self._cut
        if self._next is not None:
            return bad_note(self._read - 1, f"expected at most {chain.frames} frames, got {self._next.size}")
        if self.covered != chain.frames:
            message = f"expected a checkpoint over all {chain.frames} frames, got the end of the file"
            hint = "the seal was never signed, or the last checkpoint was taken away: treat the run as unsealed"
            return bad_note(self._read, message, hint=hint)
        if len(self._untold) > 1:
            number = self._untold[0][0]
            return bad_note(number, "expected an event that tells of this checkpoint, got none: it was added")
        return None

    def _told(self, event: CheckpointSigned) -> LogError | None:
        number, note = self._untold.popleft() if self._untold else (self.count, self._next)
        said = f"{event.note} over {event.frames} frames (event {event.n} says so)"
        if note is None:
            return bad_note(event.number, f"expected {said}, got the end of the file")
        if event.number != number or note.digest() != event.note:
            return bad_note(number, f"expected {said}, got {note.digest()} over {note.size} frames")
        return None

    def _advance(self) -> LogError | None:
        try:
            note = next(self._notes, None)
        except CutNoteError as err:
            # Whether that is a fault is known at the end: a log without a seal may end so.
            note, self._cut = None, err
        except LogError as err:
            self._next = None
            return err
        if note is not None:
            problem = check_note(note, origin=self._origin, public=self._public)
            if problem is None and note.size <= self.covered:
                problem = f"expected one over more than {self.covered} frames, got {note.size}"
            if problem is not None:
                return bad_note(self._read, problem)
            self._read, self.beyond = self._read + 1, note.size
        self._next = note
        return None


class Witnessed:
    """Holds notes that were kept in a second place to a log."""

    def __init__(self, notes: Sequence[Note], *, origin: str, public: bytes) -> None:
        """Begin before frame 0; notes are in order of their sizes."""
        self._notes = deque(notes)
        self._origin, self._public = origin, public
        self.count = len(notes)

    def take(self, chain: Chain) -> LogError | None:
        """Take in a frame that the chain was advanced by; gives the first contradiction."""
        while self._notes and self._notes[0].size <= chain.frames:
            note = self._notes.popleft()
            problem = check_note(note, origin=self._origin, public=self._public)
            if problem is None and note.size == chain.frames and note.root != chain.root():
                problem = f"expected the root {note.root.hex()}, got {chain.root().hex()}: the log was rewritten"
            if problem is not None:
                return _contradicted(note, problem)
        return None

    def finish(self, chain: Chain) -> LogError | None:
        """Check that nothing is left that was witnessed."""
        if not self._notes:
            return None
        note = self._notes[-1]
        problem = check_note(note, origin=self._origin, public=self._public)
        return _contradicted(
            note, problem or f"expected at least {note.size} frames, got {chain.frames}: the log was cut"
        )


def _contradicted(note: Note, problem: str) -> LogError:
    return LogError(problem, place=f"witnessed checkpoint over {note.size} frames")
