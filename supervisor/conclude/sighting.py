"""What a trial found of the paths that it met, and what it left: what `supervise separate` tells other writers by.

In: a trial that has ended; out: sights for its index. What it found is looked at before anything is applied to the
host: then what lies below a stage is still what the trial began with.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from supervisor import clock
from supervisor.events import Kind
from supervisor.evidence.facts import Facts
from supervisor.evidence.file_facts import ABSENT, Sight
from supervisor.launch.disk.sights import find_grounds, find_socket, look
from supervisor.launch.handed import stat_device
from supervisor.launch.runs.registry import began_ns
from supervisor.launch.stage.stage import Stage
from supervisor.launch.view.mounts import is_below
from supervisor.prepare.machine import boot_id
from supervisor.verdict.runs.indexing import paths_met
from supervisor.verdict.runs.run_index import RunIndex, with_sights

if TYPE_CHECKING:
    from supervisor.launch.stage.inplace import InPlace
    from supervisor.trial.trial import Trial


def look_at_found(trial: Trial, stage: Stage | InPlace, facts: Facts, workspace: bytes) -> tuple[Sight, ...]:
    """Give what the trial found at the paths that it met.

    In its places that is all of them, with what was there. Elsewhere it is what was touched since there are runs here:
    nothing else can be what another run, or somebody after one, changed.
    """
    met = paths_met(facts, workspace, tuple(trial.prepared.declared.shared))
    shared = [path for path in met if trial.sharing is not None and trial.sharing.states.covers(path)]
    rest = met.keys() - set(shared)
    worked = [path for path in rest if is_below(path, workspace)]
    found: list[Sight] = []
    if trial.sharing is not None:
        found += trial.sharing.states.found(shared)
    found += look(worked, digests=True) if isinstance(stage, Stage) else stage.found(worked)
    since_ns = began_ns(trial.prepared.home.path)
    kept = (sight for sight in found if sight.state != ABSENT or met[sight.path])
    elsewhere = look(rest.difference(worked), digests=False)
    recent = (sight for sight in elsewhere if sight.inode and sight.ctime_ns >= since_ns)
    given = (sight for sight in _given(facts) if sight.path not in met and sight.ctime_ns >= since_ns)
    return tuple(sorted((*kept, *recent, *given), key=lambda sight: sight.path))


def _given(facts: Facts) -> Iterator[Sight]:
    """Give what was to be read from standard streams, as it was when they were given."""
    files = (one for one in facts.streams if one.what is Kind.FILE and one.named and one.reads)
    for one in {file.path: file for file in files}.values():
        yield Sight(
            one.path, stat_device(one.device), one.inode, one.names, one.size_bytes, one.mtime_ns, one.ctime_ns,
            one.state,
        )  # fmt: skip


def add_sights(index: RunIndex, found: tuple[Sight, ...]) -> RunIndex:
    """Add to an index what was found, what is there now of what was changed, where its places lie, and the boot."""
    places = tuple(place for place in (*index.places, index.workspace) if place)
    servers = ((server, find_socket(server.address)) for server in index.servers)
    index = msgspec.structs.replace(
        index, servers=tuple(msgspec.structs.replace(server, socket=file) for server, file in servers)
    )
    return with_sights(
        msgspec.structs.replace(index, boot=boot_id()),
        found=found,
        left=tuple(look(sorted(_left(index, places)), digests=False)),
        left_ns=int(clock.now_s() * 1e9),
        grounds=tuple(find_grounds(places)),
    )


def _left(index: RunIndex, places: Iterable[bytes]) -> Iterator[bytes]:
    """Give the paths of a run's places that it changed, and the directories that hold them."""
    changed = {contact.path for contact in index.contacts if contact.how == "changed"}
    inside = {path for path in changed if any(is_below(path, place) for place in places)}
    yield from inside
    yield from {contact.path for contact in index.contacts if contact.given and contact.how == "changed"} - inside
    yield from {posixpath.dirname(path) for path in inside}.difference(inside)
