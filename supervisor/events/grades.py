"""What graders did: runs of a grader in a box of its own, whose events are a log of their own (``grades/N``)."""

from __future__ import annotations

from supervisor.events.base import Event


class GradeStarted(Event, frozen=True, kw_only=True):
    """A grader is about to be run.

    Attributes:
        number: of this run of it; its own log is in ``grades/<number>``.
        state: what it sees: ``endpoint``, ``within`` or ``settled``; ``selftest:N`` for an example; ``bound:N`` for a
            possible state.
        digest: of the captured outcome, None for an example.
        turn: from 0, counts the repeats of the same state.
        applied: for a possible state, which of the declared ones were applied, by their place in the policy.
    """

    number: int
    state: str
    digest: str | None = None
    turn: int = 0
    applied: tuple[int, ...] = ()


class GradeFinished(Event, frozen=True, kw_only=True):
    """A run of a grader is over; what it did is told from its own log, which this event binds.

    Attributes:
        number: of the run of it.
        exit_code, signal: of its shell, by the kernel witness; both None when it never ended by itself or never ran.
        problem: why it can give no label, whatever it said; None when it ran as it must.
        passed: what it said in JSON (``{"passed": true}``) on stdout, None when it said nothing of the kind.
        reason: what it said beside that; ``said`` is the whole JSON object as text.
        output: the end of what it wrote to stderr, of stdout where it wrote nothing to that and no JSON; for people.
        footprint: paths of the workspace that it opened or looked up, relative to it; ``**`` alone: more than are told.
        listed: directories of the workspace that it listed.
        elsewhere: absolute paths outside the workspace that it met; ``**`` alone: more than are told.
        executed: files of the workspace that it ran.
        log_root: RFC 6962 root of its sealed log; None when it has none.
    """

    number: int
    exit_code: int | None
    signal: int | None
    problem: str | None = None
    passed: bool | None = None
    reason: str | None = None
    said: str | None = None
    output: str = ""
    footprint: tuple[bytes, ...] = ()
    listed: tuple[bytes, ...] = ()
    elsewhere: tuple[bytes, ...] = ()
    executed: tuple[bytes, ...] = ()
    log_root: str | None = None


class ReferenceLinked(Event, frozen=True, kw_only=True):
    """A file of the grader's reference material (``grade.reads``) has another name, which may lie anywhere.

    Told before the trial is released, so that whoever opens the file by that name is told by device and inode.

    Attributes:
        path: absolute, a name that ``grade.reads`` means.
        devices: that the file may be told with, in the kernel's form: its own, and those of overlays in the box.
        inode: its number, the same in overlays.
    """

    path: bytes
    devices: tuple[int, ...]
    inode: int


class CaptureCompared(Event, frozen=True, kw_only=True):
    """A path of the claim changed after it was captured: what it was in the capture, and whether it was so again.

    Attributes:
        path: as reports tell it: relative to the workspace, absolute elsewhere.
        kept_in: where the capture is, below the directory of the run.
        captured: the kind of what was there, ``nothing`` where nothing was, ``unknown`` where that cannot be told.
        size_bytes, digest: of a file; the digest is of its content, or of where a symlink leads.
        again: at the end it was so again: kind, content, owner, mode and attributes.
    """

    path: bytes
    kept_in: str
    captured: str
    size_bytes: int = 0
    digest: str | None = None
    again: bool = False


class OutcomeCaptured(Event, frozen=True, kw_only=True):
    """The outcome as it was when the trial was over was kept, for graders now and later. ``digest`` covers it.

    ``form`` is as in `supervisor.events.trial.TrialSnapshotted`.
    """

    digest: str
    files: int
    size_bytes: int
    form: int = 1
