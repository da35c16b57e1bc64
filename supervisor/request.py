"""What one trial is asked to be, and what comes back: the values between the command line and `supervisor.run`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from policies.types import Policy
from supervisor.errors import PolicyError, UsageError
from supervisor.report.live import Phase, Progress
from supervisor.values import dataclass, field, replace

if TYPE_CHECKING:  # msgspec costs 30 ms, which the parsing of arguments does not need
    from supervisor.launch.runs.state import Home
    from supervisor.trial.tool_relay import ToolRelay
    from supervisor.verdict.completion import Completion

__all__ = [
    "Outcome",
    "Phase",
    "Progress",
    "Requirement",
    "RunRequest",
    "check_places",
    "check_request",
    "check_workspace",
    "ignore_notice",
    "ignore_progress",
    "named_by_caller",
]


class Requirement(StrEnum):
    """What ``--require`` asks for: a verdict, a label, or that whatever may be written was applied."""

    FINAL = "final"
    SEPARATE = "separate"
    CLEAN = "clean"
    SUCCESS = "success"
    APPLIED = "applied"


def ignore_progress(progress: Progress) -> None:
    """Be told and say nothing."""


def ignore_notice(lines: Sequence[str]) -> None:
    """Be told and say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One trial, as asked for.

    Attributes:
        argv: CMD and its arguments, verbatim, never empty.
        policy: with the options of the command line laid over it.
        name: what the caller calls the run, or None.
        environ: of the caller, with what ``--env NAME=VALUE`` set; not yet filtered, which
            `policies.credentials.filter_environ` does.
        cwd: of the caller, absolute.
        user: ``USER`` or ``UID``, each with ``:GROUP`` if given; None for the invoking user.
        quiet: no summary.
        json: stdout is for completion.json, so the child's stdout goes to our stderr.
        status_fd: descriptor that must not reach the box, or None.
        require: what the caller insists on.
        signing_key: key file that signs the log, or None for ``SUPERVISE_SIGNING_KEY`` or the home's own key.
        home: where runs are kept, or None to find it in ``environ``.
        on_progress: called in the supervisor's main thread; it must not block.
        closed: which of 0, 1 and 2 are closed for CMD, whatever holds these numbers in our process.
        on_notice: gets lines that the operator must see at once, such as that the disk is full; from any thread.
        room_wait_s: how long a trial stands still for want of room for its log before it is ended, or None to find it
            in ``environ`` (see `supervisor.log.room`).
        stdin, stdout, stderr: open descriptors that CMD gets; None for our own standard streams.
        place_of: gives what the caller calls a place of the policy, for mistakes that are found later.
        relay: passes what CMD reads and writes on standard streams, for ``supervise tool``; None for CMD's own.
    """

    argv: tuple[bytes, ...]
    policy: Policy = field(default_factory=Policy)
    name: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    cwd: Path
    user: str | None = None
    quiet: bool = False
    json: bool = False
    status_fd: int | None = None
    require: frozenset[Requirement] = frozenset()
    signing_key: Path | None = None
    home: Home | None = None
    on_progress: Callable[[Progress], None] = ignore_progress
    closed: frozenset[int] = frozenset()
    on_notice: Callable[[Sequence[str]], None] = ignore_notice
    room_wait_s: float | None = None
    relay: ToolRelay | None = None
    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    place_of: Callable[[str], str] = str

    def with_closed(self, closed: frozenset[int]) -> RunRequest:
        """Give the same request for a caller who has closed some of the standard streams."""
        return replace(self, closed=closed)


@contextmanager
def named_by_caller(place_of: Callable[[str], str]) -> Iterator[None]:
    """Tell mistakes of the policy by what the caller calls their places: an option, or a key of a file."""
    try:
        yield
    except (UsageError, PolicyError) as err:
        for one in (err, *err.others):
            one.place = None if one.place is None else place_of(one.place)
        raise


def check_request(request: RunRequest) -> None:
    """Refuse what the kernel would cut short: a word ends at its first NUL, so another command would run.

    Raises:
        UsageError: a word, a name or value of the environment, or the working directory holds NUL.
    """
    for place, texts in (
        ("command", request.argv),
        ("cwd", (str(request.cwd).encode("utf-8", "surrogateescape"),)),
        ("environment", (part.encode("utf-8", "surrogateescape") for pair in request.environ.items() for part in pair)),
    ):
        if any(b"\0" in text for text in texts):
            message = "expected no NUL byte, got one"
            raise UsageError(message, place=place)


def check_places(policy: Policy, *, place: str) -> None:
    """Refuse second places that no checkpoint could ever reach.

    Raises:
        UsageError: with the place.
    """
    if policy.log.checkpoint_to:
        from supervisor.log.places import check_place  # noqa: PLC0415  (hardly any run has one)

        for named in policy.log.checkpoint_to:
            check_place(named, option=place)


def check_workspace(policy: Policy, cwd: Path, *, place: str) -> None:
    """Refuse a workspace that is named and is no directory.

    Raises:
        UsageError: with the place.
    """
    workspace = policy.files.workspace
    if workspace is not None and not (cwd / workspace).is_dir():
        message = f"expected a directory, got {workspace!r}"
        raise UsageError(message, place=place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a trial that was started.

    Attributes:
        run: id.
        directory: of the run.
        completion: the completion argument, as it was written to ``completion.json``.
        unwitnessed: second places that did not get the last checkpoint, and why; those before are told in the log.
    """

    run: str
    directory: Path
    completion: Completion
    unwitnessed: tuple[tuple[str, str], ...] = ()
