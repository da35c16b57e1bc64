"""The places of a trial, once its box stands: what is watched there, and the record of it.

In: a trial that is held. The rule it keeps: everything is watched before the trial is released, and what others did is
told from the log: a change that an event of the trial explains is the trial's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from policies.types import FilesMode
from probes.kernel.watching import plan_looks
from probes.shared import PlaceWatch
from supervisor.events import Event, Origin, PlaceChanged, PlaceDeclared, PlaceUnwatched
from supervisor.launch.left import names_left
from supervisor.launch.mounts import parse_mountinfo
from supervisor.launch.sharing import SharedStates
from supervisor.values import dataclass, replace

if TYPE_CHECKING:
    from supervisor.evidence.collect import Observe
    from supervisor.evidence.file_facts import Observed, SharedNames
    from supervisor.launch.inplace import InPlace
    from supervisor.launch.stage import Stage
    from supervisor.trial import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What is kept of the shared places of one trial: who changes them, and what they were."""

    watch: PlaceWatch
    states: SharedStates


@contextmanager
def watched(trial: Trial) -> Iterator[None]:
    """Watch the places of a trial that is held, and tell what they are.

    Raises:
        MachineError: there is no room for what shared places were before.
    """
    prepared, view = trial.prepared, trial.box.view
    declared, files = prepared.declared, prepared.request.policy.files
    mounts = parse_mountinfo(Path(f"/proc/{trial.box.init_pid}/mountinfo").read_bytes())
    in_place = {view.workspace: prepared.spec.view.workspace} if files.mode is FilesMode.DIRECT else {}
    shown = {path: view.shown_at(path) for path in declared.shared}
    everywhere = [name for names in shown.values() for name in names]
    trial.left_names = names_left(prepared.home.path)
    looks = plan_looks(mounts, shared=(*everywhere, *in_place), hidden=declared.hidden, left=trial.left_names)
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
            devices=() if sort == "hidden" else looks.devices or (),
            total=len(places),
        )
    if not declared.shared:
        yield
        return
    own = {name: path for path in declared.shared for name in (path, *shown[path])}
    states = SharedStates(prepared.run.before_shared, own, state=os.fsencode(prepared.home.path))
    with PlaceWatch(tuple(declared.shared)) as watch:
        # What is changed while it is recorded is seen by the watch.
        states.prepare(limit_bytes=files.before_limit)
        trial.sharing = Sharing(watch=watch, states=states)
        yield


def record_foreign(trial: Trial, events: Iterable[Event]) -> None:
    """Record what others did to shared places, and when they may have gone unseen; the watch has ended then.

    Args:
        trial: of which nothing is alive.
        events: of the whole log so far.
    """
    if trial.sharing is None:
        return
    from supervisor.evidence.foreign import find_foreign  # noqa: PLC0415 - most trials share nothing

    seen = trial.sharing.watch.finish()
    for sight in find_foreign(seen.sightings, events) if seen.sightings else ():
        trial.record(
            PlaceChanged,
            origin=Origin.SERVICE,
            path=sight.path,
            change=sight.change,
            since_ns=sight.since_ns,
            seen_ns=sight.seen_ns,
        )
    for hole in seen.holes:
        trial.record(PlaceUnwatched, path=hole.path, why=hole.why, since_ns=hole.since_ns, seen_ns=hole.seen_ns)


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
    from supervisor.launch.inplace import InPlace  # noqa: PLC0415 - most trials share nothing
    from supervisor.launch.linked import find_recorded  # noqa: PLC0415 - likewise

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
