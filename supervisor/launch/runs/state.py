"""The state directory: where runs are kept, and how one is named and found again.

Laws:
    * A run is a directory ``<home>/runs/<run id>``; ids sort by the time the run was made.
    * Home and everything in it is for its owner only: directories 0700, files 0600. A home that somebody else owns or
      may enter is refused, because the log in it could not be trusted.
    * ``<home>/live/<run id>`` exists from before the run's directory does until the run is closed, so that whoever
      looks for leftovers of dead supervisors reads one short list instead of every run that was ever made.
    * ``<home>/lock`` is held shared while a run is being made and exclusively while leftovers are cleaned.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from supervisor.errors import LogUnreadableError, MachineError, UsageError
from supervisor.launch.disk.durable import write_whole
from supervisor.launch.disk.removing import remove_tree
from supervisor.launch.runs.owner import Owner
from supervisor.values import dataclass

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_SHOWN_CANDIDATES = 6


def make_run_id(realtime_s: float, token: bytes) -> str:
    """Make a run id such as ``20261130-080642-3f9k2x``. Ids sort by time, also those of one second.

    Args:
        realtime_s: seconds since the epoch; the id shows them in UTC.
        token: at least three random bytes, which tell apart runs of one moment.
    """
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(realtime_s))
    base = len(_ALPHABET)
    part = int(realtime_s % 1 * base**3)
    fraction = "".join(_ALPHABET[part // base**place % base] for place in (2, 1, 0))
    return f"{moment}-{fraction}{''.join(_ALPHABET[byte % base] for byte in token[:3])}"


@dataclass(frozen=True, slots=True)
class RunDir:
    """The directory of one run. Paths are given whether or not the thing is there yet."""

    path: Path

    @property
    def id(self) -> str:
        """The run id: the directory's name."""
        return self.path.name

    @property
    def log(self) -> Path:
        """The log's directory."""
        return self.path / "log"

    @property
    def stage(self) -> Path:
        """Staged writes to the workspace: ``upper``, ``work`` and the journal of the commit."""
        return self.path / "stage"

    @property
    def nested(self) -> Path:
        """Staged writes to mounts in the workspace: a directory like ``stage`` for each."""
        return self.stage / "nested"

    @property
    def before(self) -> Path:
        """What the files of the workspace were before a trial that wrote in place."""
        return self.path / "before"

    @property
    def before_shared(self) -> Path:
        """What the files of shared places were before the trial."""
        return self.path / "before-shared"

    @property
    def snapshot(self) -> Path:
        """What was captured at the endpoint."""
        return self.path / "snapshot"

    @property
    def snapshot_within(self) -> Path:
        """What was captured when the time of a claim was over."""
        return self.path / "snapshot-within"

    @property
    def settled(self) -> Path:
        """What was captured for graders when the trial was over."""
        return self.path / "settled"

    @property
    def validator(self) -> Path:
        """Where the run of a validator is kept, with a log of its own."""
        return self.path / "validator"

    @property
    def grades(self) -> Path:
        """The runs of graders, a directory each, in the form of a run."""
        return self.path / "grades"

    @property
    def manifest(self) -> Path:
        """What was run, under which policy."""
        return self.path / "manifest.json"

    @property
    def completion(self) -> Path:
        """The completion argument."""
        return self.path / "completion.json"

    @property
    def index(self) -> Path:
        """What the run says to others: `supervisor.verdict.runs.run_index`."""
        return self.path / "index.msgpack"

    @property
    def outside(self) -> Path:
        """Discarded writes outside the workspace, an overlay upper for each mount."""
        return self.path / "outside"

    @property
    def box(self) -> Path:
        """The mount point of the box's root."""
        return self.path / "box"

    @property
    def owner_file(self) -> Path:
        """Which process supervises the run."""
        return self.path / "supervisor.json"

    def write_manifest(self, manifest: Mapping[str, object]) -> bytes:
        """Write the manifest whole, and return its bytes, which the log binds."""
        data = json.dumps(manifest, indent=1, sort_keys=True).encode() + b"\n"
        write_whole(self.manifest, data)
        return data

    def read_manifest(self) -> dict[str, object]:
        """Read the manifest.

        Raises:
            LogUnreadableError: there is none, or it is no JSON object.
        """
        try:
            manifest = json.loads(self.manifest.read_bytes())
        except (OSError, ValueError) as err:
            message = f"manifest cannot be read: {err}"
            raise LogUnreadableError(message, place=str(self.manifest)) from err
        if not isinstance(manifest, dict):
            message = f"manifest is not a JSON object, got {type(manifest).__name__}"
            raise LogUnreadableError(message, place=str(self.manifest))
        return manifest

    def write_owner(self, owner: Owner) -> None:
        """Record who supervises the run."""
        write_whole(self.owner_file, owner.to_json(), durable=False)

    def read_owner(self) -> Owner | None:
        """Read who supervises the run; None when that was never recorded."""
        try:
            return Owner.from_json(self.owner_file.read_bytes())
        except FileNotFoundError:
            return None

    def close(self) -> None:
        """Take the run off the list of live ones: it needs no cleaning any more."""
        with suppress(FileNotFoundError):
            (self.path.parent.parent / "live" / self.id).unlink()


@dataclass(frozen=True, slots=True)
class Home:
    """The state directory of one user."""

    path: Path

    @classmethod
    def open(cls, environ: Mapping[str, str], *, uid: int) -> Home:
        """Find the state directory, make it when it is missing, and check that it is private.

        Args:
            environ: the environment; ``SUPERVISE_HOME`` wins, then ``XDG_STATE_HOME`` and ``HOME`` (not for root).
            uid: the user that must own it.

        Raises:
            MachineError: it cannot be made, or belongs to or is open to somebody else.
        """
        # Without symlinks and `..`: the witness tells paths that have none, and the box is tested by one in here.
        home = cls(_home_path(environ, uid=uid).resolve())
        for directory in (home.path, home.runs, home.live):
            _make_private(directory, uid=uid)
        return home

    @property
    def runs(self) -> Path:
        """The directory of the runs."""
        return self.path / "runs"

    @property
    def live(self) -> Path:
        """Names of the runs that were not closed."""
        return self.path / "live"

    def create(self, run_id: str, *, owner: Owner | None = None) -> RunDir:
        """Make the directory of a new run.

        Args:
            run_id: its id, see `make_run_id`.
            owner: who supervises it; the calling process when not given.

        Raises:
            MachineError: the run exists, or the directory cannot be made.
        """
        run = RunDir(self.runs / run_id)
        try:
            with self.locked(shared=True):
                (self.live / run_id).touch(mode=0o600)
                run.path.mkdir(mode=0o700)
                try:
                    run.write_owner(owner or Owner.current())
                except OSError:
                    remove_tree(run.path)
                    raise
        except OSError as err:
            if not run.path.is_dir():
                run.close()
            message = f"run directory cannot be made: {err.strerror}"
            raise MachineError(message, place=str(run.path)) from err
        return run

    @contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the home's lock: shared to make a run, alone to clean up."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def all(self) -> tuple[RunDir, ...]:
        """Give every run, the oldest first."""
        return tuple(map(RunDir, sorted(self.runs.iterdir())))

    def find(self, reference: str) -> RunDir:
        """Find the run that a user means.

        Args:
            reference: an id, a unique beginning of one, its last part as reports write it, ``last``, or a directory
                that holds a run.

        Raises:
            UsageError: there is none, or more than one.
        """
        if reference and "/" not in reference and (self.runs / reference).is_dir():
            return RunDir(self.runs / reference)
        if "/" in reference or (Path(reference) / "manifest.json").exists():
            return _run_in(Path(reference))
        runs = self.all()
        if reference == "last":
            return _only(runs[-1:], reference)
        begin = tuple(run for run in runs if reference and run.id.startswith(reference))
        return _only(begin or tuple(run for run in runs if run.id.rpartition("-")[2] == reference), reference)


def _run_in(path: Path) -> RunDir:
    if not (path / "manifest.json").exists():
        message = f"no run in this directory: {path}"
        raise UsageError(message, place="RUN", hint="a run's directory holds a manifest.json")
    return RunDir(path.resolve())


def _only(found: tuple[RunDir, ...], reference: str) -> RunDir:
    if len(found) == 1:
        return found[0]
    hint = "`supervise ls` lists the runs"
    if not found:
        message = f"no run is named {reference!r}"
        raise UsageError(message, place="RUN", hint=hint)
    names = ", ".join(run.id for run in found[:_SHOWN_CANDIDATES])
    more = f" and {len(found) - _SHOWN_CANDIDATES} more" if len(found) > _SHOWN_CANDIDATES else ""
    message = f"{reference!r} names {len(found)} runs: {names}{more}"
    raise UsageError(message, place="RUN", hint=hint)


def _home_path(environ: Mapping[str, str], *, uid: int) -> Path:
    if chosen := environ.get("SUPERVISE_HOME"):
        return Path(chosen).absolute()
    if uid == 0:
        return Path("/var/lib/supervise")
    if state := environ.get("XDG_STATE_HOME"):
        return Path(state).absolute() / "supervise"
    if home := environ.get("HOME"):
        return Path(home).absolute() / ".local/state/supervise"
    message = "no state directory: SUPERVISE_HOME, XDG_STATE_HOME and HOME are not set"
    raise MachineError(message, hint="set SUPERVISE_HOME to a directory of your own")


def _make_private(path: Path, *, uid: int) -> None:
    try:
        with suppress(FileExistsError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
        found = path.stat()
    except OSError as err:
        message = f"state directory cannot be used: {err.strerror}"
        raise MachineError(message, place=str(path), hint="set SUPERVISE_HOME to a directory of your own") from err
    if not path.is_dir():
        message = "state directory expected, got something else"
        raise MachineError(message, place=str(path))
    if found.st_uid != uid:
        message = f"state directory belongs to uid {found.st_uid}, expected uid {uid}"
        raise MachineError(message, place=str(path), hint="set SUPERVISE_HOME to a directory of your own")
    if found.st_mode & 0o077:
        message = f"state directory has mode {found.st_mode & 0o7777:04o}, expected 0700"
        raise MachineError(message, place=str(path), hint=f"chmod 700 {path}")
