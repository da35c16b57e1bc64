"""The places of a trial, once its box stands: what is watched there, and the record of it.

In: a trial that is held. The rule it keeps: everything is watched before the trial is released, and what others did is
told from the log: a change that an event of the trial explains is the trial's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from policies.types import FilesMode
from probes.kernel.watching import overlay_devices, plan_looks
from supervisor import clock
from supervisor.events import Event, Origin, PlaceChanged, PlaceDeclared, PlaceUnwatched, ReferenceLinked
from supervisor.launch.runs.left import names_left
from supervisor.launch.view.mounts import has_remote, parse_mountinfo, read_mounts
from supervisor.trial.given import record_given
from supervisor.values import dataclass, replace

if TYPE_CHECKING:
    from probes.shared import PlaceWatch
    from supervisor.evidence.collect import Observe
    from supervisor.evidence.file_facts import Observed, SharedNames
    from supervisor.evidence.paths.leading import ReadLinks
    from supervisor.launch.stage.inplace import InPlace
    from supervisor.launch.stage.sharing import SharedStates
    from supervisor.launch.stage.stage import Stage
    from supervisor.prepare.preparing import Prepared
    from supervisor.trial.trial import Trial


_STREAMS = 3
_CONTENT = frozenset({"created", "modified", "moved", "closed"})
"""What the watch sees of a file that has other content then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What is kept of the shared places of one trial: who changes them, and what they were."""

    watch: PlaceWatch
    states: SharedStates


@contextmanager
def watch_workspace(prepared: Prepared) -> Iterator[PlaceWatch | None]:
    """Begin to watch a workspace that is written in place, before it is recorded what is in it; None for a staged one.

    Nothing is read yet, since that takes a thread, and a box is still to be forked.
    """
    if prepared.request.policy.files.mode is not FilesMode.DIRECT:
        yield None
        return
    from probes.shared import PlaceWatch  # noqa: PLC0415 - most trials are staged

    home = os.fsencode(prepared.home.path)
    watch = PlaceWatch((os.fsencode(prepared.workspace),), hidden=home, closing=True)
    try:
        watch.begin()
        yield watch
    finally:
        watch.finish()


@contextmanager
def watched(trial: Trial, writers: PlaceWatch | None) -> Iterator[None]:
    """Watch the places of a trial that is held, and tell what they are, and what it was given.

    Args:
        trial: that is held.
        writers: the watch of a workspace that is written in place, which was begun.

    Raises:
        MachineError: there is no room for what shared places were before.
    """
    prepared, view = trial.prepared, trial.box.view
    declared, files = prepared.declared, prepared.request.policy.files
    record_given(trial)
    mounts = parse_mountinfo(Path(f"/proc/{trial.box.init_pid}/mountinfo").read_bytes())
    in_place = {view.workspace: prepared.spec.view.workspace} if files.mode is FilesMode.DIRECT else {}
    shown = {path: view.shown_at(path) for path in declared.shared}
    everywhere = [name for names in shown.values() for name in names]
    trial.left_names = names_left(prepared.home.path)
    looks = plan_looks(
        mounts,
        shared=(*everywhere, *in_place),
        hidden=declared.hidden,
        left=trial.left_names,
        denied=tuple(declared.denied),
    )
    trial.witness.look_for(looks)
    places = [
        *((path, (named, *shown[path]), "shared") for path, named in declared.shared.items()),
        *((path, (named,), "hidden") for path, named in declared.denied.items()),
        *((path, (named,), "workspace") for path, named in in_place.items()),
    ]
    for path, names, sort in places:
        trial.record(
            PlaceDeclared,
            path=path,
            names=tuple(dict.fromkeys(name for name in names if name != path)),
            hidden=sort == "hidden",
            workspace=sort == "workspace",
            watched=sort == "shared" or (sort == "workspace" and not _is_remote(path)),
            devices=looks.masks if sort == "hidden" else looks.devices or (),
            total=len(places),
        )
    overlays = overlay_devices(mounts) if declared.linked else ()
    for path, device, inode in declared.linked:
        trial.record(ReferenceLinked, path=path, devices=(device, *overlays), inode=inode)
    with ExitStack() as stack:
        if writers is not None:
            trial.writers = stack.enter_context(writers)
        if declared.shared:
            trial.sharing = stack.enter_context(_shared(trial, shown))
        yield


def _is_remote(workspace: bytes) -> bool:
    return has_remote(read_mounts(), os.stat(workspace).st_dev, workspace)  # noqa: PTH116 - a path of bytes


@contextmanager
def _shared(trial: Trial, shown: Mapping[bytes, tuple[bytes, ...]]) -> Iterator[Sharing]:
    """Watch the shared places, which the trial sees by these names too, and record what is in them."""
    from probes.shared import PlaceWatch  # noqa: PLC0415 - most trials share nothing
    from supervisor.launch.stage.sharing import SharedStates  # noqa: PLC0415 - likewise

    prepared, declared = trial.prepared, trial.prepared.declared
    own = {name: path for path in declared.shared for name in (path, *shown[path])}
    states = SharedStates(prepared.run.before_shared, own, state=os.fsencode(prepared.home.path))
    with PlaceWatch(tuple(declared.shared)) as watch:
        # What is changed while it is recorded is seen by the watch.
        states.prepare(limit_bytes=prepared.request.policy.files.before_limit)
        yield Sharing(watch=watch, states=states)


def record_foreign(trial: Trial, events: Iterable[Event], links: ReadLinks) -> None:
    """Record what others did to places that are written in place, and when they may have gone unseen.

    The watch has ended then.

    Args:
        trial: of which nothing is alive.
        events: of the whole log so far.
        links: gives the symlinks of before the trial among some paths.
    """
    watches = [trial.sharing.watch] if trial.sharing is not None else []
    watches += [trial.writers] if trial.writers is not None else []
    if not watches:
        return
    from supervisor.evidence.paths.foreign import find_foreign  # noqa: PLC0415 - most trials share nothing

    if trial.writers is not None:
        _record_held(trial, trial.writers)
    seen = [watch.finish() for watch in watches]
    sightings = [sight for one in seen for sight in one.sightings]
    for sight in find_foreign(sightings, events, links) if sightings else ():
        trial.record(
            PlaceChanged,
            origin=Origin.SERVICE,
            path=sight.path,
            change=sight.change,
            since_ns=sight.since_ns,
            seen_ns=sight.seen_ns,
        )
    for hole in (hole for one in seen for hole in one.holes):
        trial.record(PlaceUnwatched, path=hole.path, why=hole.why, since_ns=hole.since_ns, seen_ns=hole.seen_ns)


def _record_held(trial: Trial, writers: PlaceWatch) -> None:
    """Record which of the files that were written somebody has open for writing still: anybody but the trial.

    What the caller gave the trial as a standard stream is left out: that is told as given, and we hold it, too.
    """
    from probes.shared import find_held  # noqa: PLC0415 - likewise

    since_ns = clock.boottime_ns()
    own = {_file_of(os.fstat(number)) for number in range(_STREAMS) if _is_open(number)}
    sightings = writers.finish().sightings
    for path, why in find_held(dict.fromkeys(sight.path for sight in sightings if sight.change in _CONTENT)):
        with suppress(OSError):
            if _file_of(os.lstat(path)) in own:
                continue
        span = {"path": path, "since_ns": since_ns, "seen_ns": clock.boottime_ns()}
        if why:
            trial.record(PlaceUnwatched, why=why, **span)
        else:
            trial.record(PlaceChanged, origin=Origin.SERVICE, change="held", **span)


def _file_of(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def observed(trial: Trial, paths: Sequence[bytes], elsewhere: Observe) -> dict[bytes, Observed]:
    """Read the states of paths, those of shared places among them.

    Args:
        trial: that has ended.
        paths: absolute, as events have them.
        elsewhere: gives those of all other paths.
    """
    if trial.sharing is None:
        return dict(elsewhere(paths))
    states = trial.sharing.states
    shared = [path for path in paths if states.covers(path)]
    return {**elsewhere([path for path in paths if not states.covers(path)]), **states.observe(shared)}


def shared_names(trial: Trial, writes: Stage | InPlace, *, linked: bool) -> SharedNames:
    """Give the names that share a file, those in shared places among them.

    Args:
        trial: that has ended.
        writes: to the workspace.
        linked: whether the trial gave any file another name.
    """
    if trial.sharing is None:
        return writes.aliases(linked)
    from supervisor.launch.stage.inplace import InPlace  # noqa: PLC0415 - most trials share nothing
    from supervisor.launch.stage.linked import find_recorded  # noqa: PLC0415 - likewise

    recorded = list(trial.sharing.states.recorded())
    if isinstance(writes, InPlace):
        return find_recorded([*writes.inventory.entries.values(), *recorded])
    staged, placed = writes.aliases(linked), find_recorded(recorded)
    return replace(staged, before=(*staged.before, *placed.before), elsewhere=placed.elsewhere)


def changed(trial: Trial, elsewhere: Callable[[], Iterable[bytes]]) -> Iterator[bytes]:
    """Give every path that changed on disk, those of shared places among them."""
    yield from elsewhere()
    if trial.sharing is not None:
        yield from trial.sharing.states.changed()
