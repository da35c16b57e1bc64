"""What can go wrong, by whose fault it is. Each class names the exit code the command gives for it.

The trial's own failure is no exception: it is data, and the child's exit code is passed on.
"""

from __future__ import annotations

import errno

_EXHAUSTED = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)


class SuperviseError(Exception):
    """The base of all our errors.

    Args:
        message: subject first, lower case, ``expected X, got Y``.
        place: where it is (``network.allow[2]``, a path, an option), or None.
        hint: what to do about it, or None.
    """

    exit_code = 125

    def __init__(self, message: str, *, place: str | None = None, hint: str | None = None) -> None:
        """Keep the three parts apart, so that a report can show them apart."""
        super().__init__(message)
        self.message = message
        self.place = place
        self.hint = hint

    def __str__(self) -> str:
        """Give the place and the message on one line; the hint is left to the caller."""
        return f"{self.place}: {self.message}" if self.place else self.message


class UsageError(SuperviseError):
    """The caller's: a wrong option, argument or RUN reference. Exit code 125.

    Attributes:
        others: further mistakes of the same call, so that all of them can be told at once.
    """

    others: tuple[UsageError, ...] = ()


class PolicyError(SuperviseError):
    """The caller's: a policy that cannot be read or does not hold together. Exit code 125.

    Attributes:
        others: further mistakes of the same policy, so that all of them can be told at once.
    """

    others: tuple[PolicyError, ...] = ()


class MachineError(SuperviseError):
    """The machine's: it cannot witness, or cannot isolate, what was asked. Exit code 125."""


def refused_by_machine(err: OSError) -> MachineError | None:
    """Give the error for a full or broken disk, or too few descriptors; None for what is no fault of the machine."""
    if err.errno not in _EXHAUSTED:
        return None
    return MachineError(err.strerror or str(err), place=err.filename if isinstance(err.filename, str) else None)


class LaunchError(MachineError):
    """The machine's: a box could not be built or failed its test before CMD was started. Exit code 125.

    Args:
        step: the step that failed (``mount overlay``), for the report.
    """

    def __init__(
        self, message: str, *, step: str | None = None, place: str | None = None, hint: str | None = None
    ) -> None:
        """Keep the failed step beside the message."""
        super().__init__(message, place=place, hint=hint)
        self.step = step


class LogError(SuperviseError):
    """The log's: it is damaged, cut or does not say what it should. ``verify`` exits with 1 for it, others with 125.

    Args:
        frame: number of the first bad frame, counted from 0, or None when no frame is at fault.
    """

    exit_code = 1

    def __init__(
        self, message: str, *, frame: int | None = None, place: str | None = None, hint: str | None = None
    ) -> None:
        """Keep the number of the first bad frame."""
        super().__init__(message, place=place, hint=hint)
        self.frame = frame


class LogFullError(LogError):
    """The machine's: there is no room for the log. Nothing that was logged is lost. Exit code 125."""

    exit_code = 125


class LogUnsealedError(LogError):
    """The log's: whole as far as it goes, but without a seal. Exit code 1; ``frame`` is where one was expected.

    Attributes:
        cut: signed checkpoints tell of more frames than there are: it was longer once.
    """

    cut = False


class LogUnreadableError(LogError):
    """The log's: there is nothing that could be verified (no directory, no permission). Exit code 125."""

    exit_code = 125


class InternalError(SuperviseError):
    """Ours: a bug. Exit code 125."""
