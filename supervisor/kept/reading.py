"""Runs that were kept, read again: what `show`, `why`, `events` and `verify` are made of, and `ls` in part.

The rule: nothing is told as concluded that the log does not vouch for. A run without a seal has no verdicts, and one
that does not verify is told with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from supervisor.errors import LogError, LogUnreadableError, LogUnsealedError, UsageError
from supervisor.events import Event, TrialHeld, TrialReleased
from supervisor.launch.runs.state import RunDir
from supervisor.log.frames import HEADER_BYTES, MAGIC, MAX_PAYLOAD, FrameType, check_crc, parse_header
from supervisor.log.notes import CutNoteError, read_notes
from supervisor.log.reader import Decode, read_events
from supervisor.log.segments import list_segments
from supervisor.log.signer import NAME as NOTES
from supervisor.log.verify import Verified, verify_log
from supervisor.report import why
from supervisor.report.events_json import to_lines
from supervisor.report.lines import Line, line
from supervisor.report.safe import safe
from supervisor.values import dataclass, replace
from supervisor.verdict.completion import Completion, from_json, to_json, without_seal

_CHUNK_BYTES = 1 << 16
ADDENDA = "addenda"
"""Where in a run's directory what was sealed later lies, see `supervisor.settle.settling`."""


JUDGEMENTS = "judgements"
"""Where judgements under other claims and graders lie, see `supervisor.kept.judging`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A completion argument, and whether the log vouches for it.

    Attributes:
        run: id.
        directory: of the run.
        completion: None when none can be read. Of a run that was never sealed, the one with nothing resolved.
        unread: why none can be read, of a run that had one; None for one that was never judged.
        problem: why the log does not vouch for it, or None when it does.
        unsealed: the run was never sealed.
        exit_code: what ``verify`` exits with: 0 when the log vouches, 1 when it does not, 125 when it cannot be read.
        document: the file that the argument was read from, when it is that of an addendum.
    """

    run: str
    directory: Path
    completion: Completion | None
    unread: str | None = None
    problem: str | None = None
    unsealed: bool = False
    exit_code: int = 0
    document: Path | None = None

    def completion_bytes(self) -> bytes:
        """Give completion.json as it was written; of a run that was never sealed, with nothing resolved.

        Raises:
            LogError: there is none, or the log does not vouch for it: whoever reads JSON reads no warning beside it.
        """
        if self.completion is not None and self.unsealed:
            return to_json(self.completion)
        if self.completion is None or self.problem is not None:
            message = f"expected a completion argument that the log vouches for, got: {self.problem}"
            raise LogError(message, place=self.run, hint=f"supervise events {self.run} shows what was logged")
        return (self.document or self.directory / "completion.json").read_bytes()


def read_run(run: RunDir) -> Reading:
    """Read what was concluded about a run, and verify its log.

    Raises:
        LogUnreadableError: the log vouches for a completion.json that is no completion argument.
    """
    try:
        verify_run(run)
    except LogUnsealedError as err:
        found, _ = _completion_if_any(run)
        shown = None if found is None else without_seal(found)
        return Reading(run=run.id, directory=run.path, completion=shown, problem=str(err), unsealed=True, exit_code=1)
    except LogError as err:
        found, unread = _completion_if_any(run)
        return Reading(
            run=run.id,
            directory=run.path,
            completion=found,
            unread=unread,
            problem=str(err),
            exit_code=err.exit_code,
        )
    later = addenda(run)
    latest = later[-1] if later else run
    return Reading(
        run=run.id,
        directory=run.path,
        completion=read_completion(latest),
        document=latest.completion if later else None,
    )


def addenda(run: RunDir) -> tuple[RunDir, ...]:
    """Give the sealed addenda of a run, the oldest first. One that was never sealed and signed counts for nothing."""
    return tuple(one for one in _later(run.path / ADDENDA) if is_closed(one) and _is_signed(one))


def read_completion(run: RunDir) -> Completion:
    """Read completion.json, without asking whether the log vouches for it.

    Raises:
        LogUnreadableError: it is not there, or is no completion argument.
    """
    try:
        return from_json(run.completion.read_bytes())
    except OSError as err:
        message = f"expected a completion argument, got: {err.strerror}"
        raise LogUnreadableError(message, place=str(run.completion)) from err
    except ValueError as err:
        message = f"expected a completion argument, got: {err}"
        raise LogUnreadableError(message, place=str(run.completion)) from err


def verify_run(run: RunDir, *, key: str | None = None, witnessed: Path | None = None) -> Verified:
    """Verify a run's log, its signatures, the documents and copies that its seal binds, and what was sealed later.

    Args:
        run: the run.
        key: demand that this key signed, ``ed25519:…``.
        witnessed: checkpoints that a second place kept, which the log must extend.

    Raises:
        LogError: something is not as it was, or there is nothing to verify.
    """
    verified = verify_log(run.path, key=key, witnessed=witnessed)
    if verified.captures or verified.stage_kept:
        from supervisor.launch.stage.kept import verify_kept  # noqa: PLC0415 - few runs keep something

        verify_kept(run, _workspace(run), verified.captures, stage=verified.stage if verified.stage_kept else None)
    roots = {".": verified.root}
    for later in _later(run.path / ADDENDA):
        if not _counts_for_nothing(later):
            _verify_addendum(later, run, roots, key)
    for later in _later(run.path / JUDGEMENTS):
        if not _counts_for_nothing(later):
            _verify_judgement(later, verified)
    return verified


def _later(top: Path) -> tuple[RunDir, ...]:
    return tuple(map(RunDir, sorted(top.iterdir()))) if top.is_dir() else ()


def _counts_for_nothing(later: RunDir) -> bool:
    """Tell whether something was begun and never sealed: whoever was at it was killed, or is at it still.

    Raises:
        LogError: it was changed. `LogUnsealedError` when it was sealed or signed further once, and its end is gone.
    """
    if is_closed(later):
        return not _is_signed(later)
    if not (later.log / NOTES).exists():
        return True  # it did not live to its first checkpoint
    try:
        verify_log(later.path)
    except LogUnsealedError as err:
        if err.cut:
            raise
    return True


def _verify_judgement(later: RunDir, verified: Verified) -> None:
    """Verify a judgement of a run, which must be about this evidence; it may be signed by another key."""
    verify_log(later.path)
    judges = later.read_manifest().get("judges")
    if not isinstance(judges, dict) or judges.get("root") != verified.evidence_root:
        message = f"expected a judgement of the evidence {verified.evidence_root}, got one of something else"
        raise LogError(message, place=str(later.path))


def _verify_addendum(later: RunDir, run: RunDir, roots: dict[str, str], key: str | None) -> None:
    """Verify one addendum, which must go on with this run and with every addendum before it."""
    found = verify_log(later.path, key=key)
    manifest = later.read_manifest()
    settled = manifest.get("settles")
    said = {str(one.get("path")): one.get("root") for one in settled} if isinstance(settled, list) else {}
    if manifest.get("run") != run.id or said != roots:
        message = f"expected an addendum to the logs {roots}, got one to {said} of {manifest.get('run')}"
        raise LogError(message, place=str(later.manifest))
    roots[f"{ADDENDA}/{later.id}"] = found.root


def explain(run: RunDir, reference: str) -> Iterator[Line]:
    """Say what was concluded about one thing, and print the events that this rests on.

    Args:
        run: the run.
        reference: see `supervisor.report.why`.

    Raises:
        UsageError: nothing of that name is in the run.
        LogError: the log is damaged before the last event asked for.
    """
    completion = read_completion(run) if run.completion.exists() else None
    try:
        wanted = why.answer(completion, reference)
    except UsageError as err:
        wanted = _not_concluded(run, reference, err)
    events = _Counted(_events(run), wanted)
    yield from wanted.lines
    yield from why.event_lines(events, wanted, _beginning(run))
    if not wanted.lines and not events.covered:
        message = f"expected an event of the run, got {reference!r}"
        raise UsageError(message, place="REF", hint=f"it has {events.all:,} events, numbered from 0")


def _not_concluded(run: RunDir, reference: str, err: UsageError) -> why.Answer:
    """Look for a path in the log itself: what was only read, or refused, is in no argument.

    Raises:
        UsageError: it is there in no event either.
    """
    wanted = reference.removeprefix("./").encode(errors="surrogateescape")
    places = {wanted} if wanted.startswith(b"/") else {wanted, _workspace(run).rstrip(b"/") + b"/" + wanted}
    numbers = frozenset(event.n for event in _events(run) if _paths(event) & places)
    if not numbers:
        raise err
    said = f"{safe(reference)}: nothing was concluded about it: it was not changed; events that name it:"
    return why.Answer(lines=(line(said),), numbers=numbers)


def _paths(event: Event) -> set[bytes]:
    named = (getattr(event, name, None) for name in ("path", "old_path", "new_path", "exe"))
    return {path for path in named if isinstance(path, bytes)}


def _workspace(run: RunDir) -> bytes:
    return str(manifest_if_any(run).get("workspace", "/")).encode(errors="surrogateescape")


class _Counted:
    """Passes events on and counts them: all, and those that an answer covers."""

    def __init__(self, events: Iterable[Event], wanted: why.Answer) -> None:
        self._events = events
        self._wanted = wanted
        self.all = 0
        self.covered = 0

    def __iter__(self) -> Iterator[Event]:
        for event in self._events:
            self.all += 1
            self.covered += self._wanted.covers(event)
            yield event


def event_lines(run: RunDir, *, kind: str | None = None) -> Iterator[bytes]:
    """Give the events as JSON lines, in chunks of many lines.

    Args:
        run: the run.
        kind: a wire kind (``file.opened``), or its subject (``file``) for all of its kinds.

    Raises:
        UsageError: there is no such kind.
        LogError: the log is damaged; every event before the damage was given.
    """
    _check_kind(kind)
    kept = (event for event in _events(run) if kind is None or event.kind == kind or event.kind.startswith(f"{kind}."))
    chunk = bytearray()
    try:
        for printed in to_lines(kept, realtime_offset_ns=_realtime_offset_ns(run)):
            chunk += printed + b"\n"
            if len(chunk) >= _CHUNK_BYTES:
                yield bytes(chunk)
                chunk.clear()
    except LogError:
        yield bytes(chunk)
        raise
    yield bytes(chunk)


def _check_kind(kind: str | None) -> None:
    known = set(_kinds(Event))
    known |= {name.partition(".")[0] for name in known}
    if kind is not None and kind not in known:
        import difflib  # noqa: PLC0415  (only an error needs it)

        close = difflib.get_close_matches(kind, sorted(known), n=1)
        message = f"expected a kind of events or a subject, got {kind!r}"
        subjects = ", ".join(sorted(name for name in known if "." not in name))
        hint = f"did you mean {close[0]}?" if close else f"subjects: {subjects}"
        raise UsageError(message, place="--kind", hint=hint)


def _kinds(top: type[Event]) -> Iterator[str]:
    for kind in top.__subclasses__():
        yield from _kinds(kind) if kind.__subclasses__() else (str(kind.__struct_config__.tag),)


def events_of(run: RunDir) -> Iterator[Event]:
    """Give every event of a run, as the log has it.

    Raises:
        LogError: the log is damaged; every event before the damage was given.
    """
    return _events(run)


def _events(run: RunDir) -> Iterator[Event]:
    return read_events(run.log, decoder(manifest_if_any(run)))


def decoder(manifest: Mapping[str, Any]) -> Decode:
    """Give what decodes the kernel's records in the log of a run with this manifest."""
    from probes.kernel.decode import decode_slab  # noqa: PLC0415  (what lists runs needs no decoder)

    host = manifest.get("host")
    machine = host.get("machine") if isinstance(host, dict) else None
    # The log may have been brought here from a machine of another kind: its system calls have the numbers of that one.
    return partial(decode_slab, machine=machine) if isinstance(machine, str) else decode_slab


def _beginning(run: RunDir) -> why.Beginning:
    """Read on to the release, which stands near the beginning of a log; one that was never released is read whole."""
    found = why.Beginning()
    try:
        for event in _events(run):
            if isinstance(event, TrialHeld):
                helpers = frozenset({event.init, *event.helpers} - {event.process})
                found = why.Beginning(realtime_offset_ns=event.realtime_offset_ns, helpers=helpers)
            elif isinstance(event, TrialReleased):
                return replace(found, released_ns=event.time_ns)
    except LogError:
        return found  # whoever reads on meets the damage again, at its place
    return found


def _realtime_offset_ns(run: RunDir) -> int | None:
    """Give what is to be added to CLOCK_BOOTTIME for the time of day: it stands near the beginning of every log."""
    try:
        return next((event.realtime_offset_ns for event in _events(run) if isinstance(event, TrialHeld)), None)
    except LogError:
        return None


def _completion_if_any(run: RunDir) -> tuple[Completion | None, str | None]:
    """Give the completion argument; or None, and why what there was cannot be read. Without a seal there was none."""
    if not run.completion.exists():
        return None, f"{run.completion.name} is not there" if is_closed(run) else None
    try:
        return read_completion(run), None
    except LogUnreadableError:
        return None, f"{run.completion.name} was altered and cannot be read"


def is_closed(run: RunDir) -> bool:
    """Tell whether the log ends with a seal, from its last bytes alone: lists must stay quick."""
    try:
        name = list_segments(run.log)[-1:]
        tail = _last_bytes(run.log / name[0], HEADER_BYTES + MAX_PAYLOAD[FrameType.SEAL]) if name else b""
    except (LogError, OSError):
        return False
    return _is_seal(tail[tail.rfind(MAGIC) :])


def _is_signed(later: RunDir) -> bool:
    """Tell whether a note covers the seal: whoever was killed between the two had not finished.

    Of notes that are damaged the verifier says so.
    """
    covered = 0
    try:
        for note in read_notes(later.log / NOTES):
            covered = note.size
    except CutNoteError:
        pass
    except LogError:
        return True
    return covered > _seal_number(later)


def _seal_number(later: RunDir) -> int:
    name = list_segments(later.log)[-1]
    tail = _last_bytes(later.log / name, HEADER_BYTES + MAX_PAYLOAD[FrameType.SEAL])
    return parse_header(tail[tail.rfind(MAGIC) :][:HEADER_BYTES], 0).number


def _is_seal(frame: bytes) -> bool:
    head, payload = frame[:HEADER_BYTES], frame[HEADER_BYTES:]
    try:
        header = parse_header(head, 0)
        check_crc(head, payload, header, 0)
    except LogError:
        return False
    return header.type == FrameType.SEAL


def _last_bytes(path: Path, size_bytes: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - size_bytes, 0))
        return file.read()


def manifest_if_any(run: RunDir) -> dict[str, Any]:
    """Read the manifest of a run; nothing when there is none that could be read."""
    try:
        return run.read_manifest()
    except LogUnreadableError:
        return {}
