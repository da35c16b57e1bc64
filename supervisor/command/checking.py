"""Verifying, proving and keys as answers: what `verify`, `prove` and `key` print, and with which code they exit.

In: references and files as they were typed. Out: an `Answer`. The command line prints it and adds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from supervisor.errors import LogError, UsageError
from supervisor.kept.listed import is_running, missed_runs
from supervisor.kept.proving import check_proof
from supervisor.kept.reading import verify_run
from supervisor.launch.disk.durable import write_whole
from supervisor.launch.runs.state import Home, RunDir
from supervisor.log.keys import KeyStore, read_public
from supervisor.log.proof import make_proof
from supervisor.report.safe import harmless, safe
from supervisor.report.verified import verified_line
from supervisor.values import dataclass, replace

_GOOD = "good"
_BAD = {1: "bad", 125: "unreadable"}
_RUNNING = "still running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command has to say.

    Attributes:
        code: to exit with.
        found: what that means, in one word or two.
        out: lines for stdout.
        err: lines for stderr.
    """

    code: int = 0
    found: str = _GOOD
    out: tuple[str, ...] = ()
    err: tuple[str, ...] = ()


def verify_runs(
    home: Home,
    references: Sequence[str],
    *,
    key_file: str | None = None,
    witnessed: str | None = None,
    again: bool = False,
) -> Iterator[Answer]:
    """Verify runs, one answer each as soon as it is known; of several, the last answer counts them.

    Args:
        home: where runs are found, and whose keys are ours.
        references: of the runs, or ``all`` alone: those that are there, but for one that still runs, which is counted.
        key_file: holds the key that must have signed.
        witnessed: checkpoints that a second place kept.
        again: recompute every verdict from the log, too.

    Raises:
        UsageError: there is no such run, or no key in the file. Before the first answer.
    """
    key = read_public(Path(key_file)) if key_file else None
    place = Path(witnessed) if witnessed else None
    whole = list(references) == ["all"]
    runs = _every_run(home) if whole else [home.find(reference) for reference in references]
    if len(runs) == 1 and not whole:
        yield _verify_one(home, runs[0], key, place, again=again)
        return
    counted: Counter[str] = Counter()
    for run in runs:
        # A log that is written meanwhile has ends that do not meet: it is not looked at.
        goes_on = whole and is_running(run)
        answer = _goes_on(run) if goes_on else _verify_one(home, run, key, place, again=again)
        counted[answer.found] += 1
        # One line each: what may help is told to whoever asks about the one.
        yield replace(answer, err=answer.err[:1])
    told = ", ".join(f"{counted[word]} {word}" for word in (_GOOD, *_BAD.values(), _RUNNING) if counted[word])
    missed = missed_runs(home).warnings() if whole else ()
    runs_told = f"{len(runs)} run{'' if len(runs) == 1 else 's'}"
    yield Answer(out=(f"{runs_told}: {told}",), err=tuple(f"supervise: {harmless(said)}" for said in missed))


def _goes_on(run: RunDir) -> Answer:
    return Answer(found=_RUNNING, err=(f"{safe(run.id)}: still running: not verified",))


def _every_run(home: Home) -> tuple[RunDir, ...]:
    found = home.all()
    if not found:
        message = "expected at least one run, got none"
        raise UsageError(message, place="all", hint=f"{home.runs} is empty")
    return found


def _verify_one(home: Home, run: RunDir, key: str | None, witnessed: Path | None, *, again: bool) -> Answer:
    try:
        verified = verify_run(run, key=key, witnessed=witnessed)
    except LogError as err:
        return _bad(run.id, err)
    ours = verified.key is not None and KeyStore(home.path).owns(verified.key)
    good = verified_line(run.id, verified, ours=ours)
    if not again:
        return Answer(out=(good,))
    from supervisor.kept.rejudging import rejudge  # noqa: PLC0415 - the engine, which reading a log does not need

    try:
        rejudged = rejudge(run)
    except LogError as err:
        return _bad(run.id, err)
    if rejudged.differing:
        return Answer(code=1, found=_BAD[1], out=(good,), err=(safe(rejudged.told()),))
    return Answer(out=(good, safe(rejudged.told())))


def verify_proof_file(home: Home, name: str, stdin: BinaryIO, *, key_file: str | None) -> Answer:
    """Check what `supervise prove` wrote.

    Args:
        home: whose keys are trusted when none is named.
        name: of the file, or ``-``.
        stdin: is read for ``-``.
        key_file: holds the key that must have signed.

    Raises:
        UsageError: there is no such file; or no key was named, and the proof's is none of the home's.
    """
    try:
        data = stdin.read() if name == "-" else Path(name).read_bytes()
    except OSError as err:
        raise UsageError(f"expected a file, got: {err.strerror}", place=name) from err
    key = read_public(Path(key_file)) if key_file else None
    try:
        line, told = check_proof(data, home, key=key)
    except LogError as err:
        return _bad(name, err)
    return Answer(out=(told, line.decode()))


def _bad(name: str, err: LogError) -> Answer:
    word = _BAD[err.exit_code]
    hint = (f"  {safe(err.hint)}",) if err.hint else ()
    return Answer(code=err.exit_code, found=word, err=(f"{safe(name)}: {word}: {safe(str(err))}", *hint))


def prove_event(home: Home, reference: str, event: int, *, output: str | None) -> bytes | None:
    """Prove one event; gives the proof, or None when it was written to a file.

    Raises:
        UsageError: there is no such run or event.
        LogError: the log is damaged.
    """
    proof = make_proof(home.find(reference).path, event)
    if output is None:
        return proof
    try:
        write_whole(Path(output), proof, mode=0o644)
    except OSError as err:
        raise UsageError(f"expected to write a file, got: {err.strerror}", place=output) from err
    return None


def keys(home: Home, *, new: bool, bare: bool = False) -> Answer:
    """Show the public keys, the one that signs first; with ``new``, make that one now.

    Args:
        home: where they are kept.
        new: make one that signs from now on.
        bare: only the key that signs, and nothing beside it: what ``--key`` takes.
    """
    store = KeyStore(home.path)
    if new:
        store.new()
    else:
        store.current()
    if bare:
        return Answer(out=tuple(key.public for key in store.all() if key.current))
    return Answer(out=tuple(f"{key.public}  {key.path}{'  signs' if key.current else ''}" for key in store.all()))
