"""After the trial: where its decoys and credentials are met again. In: a trial that ended, and its facts; out: facts.

Looked at are the files that it touched in its workspace and what lies in shared places, for decoys of this run and of
earlier ones; and what the gateway recorded. What is found is an event, so that the log alone tells it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from policies.types import FilesMode
from supervisor.events import (
    CanaryLeaked,
    CredentialFound,
    CredentialLooked,
    CredentialRedacted,
    Event,
    Kind,
    Origin,
    ProcessKey,
)
from supervisor.evidence.credentials import with_credentials
from supervisor.evidence.facts import Facts, Touch
from supervisor.evidence.naming import show
from supervisor.launch.disk.tree import Tree
from supervisor.prepare.credentials import Credentials

if TYPE_CHECKING:
    from policies.spotting import Spotter
    from probes.credentials.search import Hit, Search
    from supervisor.trial.trial import Trial

_OUTGOING_MAX = 500
_CONTENT = frozenset({"read", "mapped", "executed", "changed"})
"""Ways to meet a shared path by which its content got in or out."""


def search(trial: Trial, facts: Facts, outgoing: Outgoing, on_disk: Mapping[bytes, bytes]) -> Facts:
    """Search, record what is found, and add it to the facts.

    Args:
        trial: nothing of it is alive, and its log was read.
        facts: of the trial.
        outgoing: what was looked at while the log was read.
        on_disk: names on disk of the paths that the log has without a credential's value, absolute.
    """
    credentials = trial.prepared.credentials
    recorded: list[Event] = []
    touched = _touched(facts)
    recorded += outgoing.record(trial)
    if touched:
        from probes.credentials.search import Search  # noqa: PLC0415 - most trials leave nothing to look at

        passed = {one.name: os.fsencode(one.value) for one in credentials.secrets if one.passed}
        recorded += _files(trial, touched, Search(outgoing.decoys, passed), on_disk)
    if trial.prepared.declared.shared and facts.touches and outgoing.decoys is not None:
        from probes.credentials.search import Search  # noqa: PLC0415 - as above

        recorded += _shared(trial, facts.touches, Search(outgoing.decoys, {}, looks=False))
    for name, where, count in credentials.redactor.take_counts():
        fingerprint = credentials.fingerprint(name)
        recorded.append(trial.record(CredentialRedacted, name=name, where=where, count=count, fingerprint=fingerprint))
    return with_credentials(facts, recorded)


def _touched(facts: Facts) -> dict[bytes, ProcessKey | None]:
    """Give the files of the workspace that have new content, each with who wrote it last."""
    return {
        history.path: history.writers[-1] if history.writers else None
        for history in facts.files
        if history.in_workspace and history.after is not None and history.after.kind is Kind.FILE and history.changes
    }


def _files(
    trial: Trial, touched: dict[bytes, ProcessKey | None], searching: Search, on_disk: Mapping[bytes, bytes]
) -> Iterator[Event]:
    prepared = trial.prepared
    staged = prepared.request.policy.files.mode is FilesMode.STAGED
    top = os.fsencode(prepared.workspace).rstrip(b"/") + b"/"
    named = {on_disk.get(top + name, top + name)[len(top) :]: name for name in touched}
    with Tree(prepared.run.stage / "upper" if staged else prepared.workspace, may_be_gone=True) as tree:
        for hit in searching.run(tree, named):
            name = named[hit.name]
            yield _record(trial, hit, top + name, touched[name])
    yield from _left_out(trial, searching)


def _shared(trial: Trial, touches: Iterable[Touch], searching: Search) -> Iterator[Event]:
    """Look for decoys in what the trial read or wrote of shared places: its own, or another run's that it met."""
    met = {touch.path: touch.process for touch in touches if touch.how in _CONTENT}
    for place in trial.prepared.declared.shared:
        directory = os.path.isdir(place)  # noqa: PTH112 - paths are bytes
        top = place if directory else os.path.dirname(place)  # noqa: PTH120 - as above
        names = [path[len(top) + 1 :] for path in met if path == place or path.startswith(place + b"/")]
        if not names:
            continue
        with Tree(top, may_be_gone=True) as tree:
            for hit in searching.run(tree, names):
                path = top + b"/" + hit.name
                yield _record(trial, hit, path, met[path])
    yield from _left_out(trial, searching)


def _left_out(trial: Trial, searching: Search) -> Iterator[Event]:
    if searching.left_out:
        yield trial.record(
            CredentialLooked,
            files=searching.files,
            left_out=searching.left_out,
            reason=searching.reason,
            decoys=bool(trial.prepared.credentials.decoys),
        )


def _record(trial: Trial, hit: Hit, path: bytes, process: ProcessKey | None) -> Event:
    if hit.run is not None:
        return trial.record(
            CanaryLeaked,
            process=process,
            form=hit.form,
            placed_by=hit.run,
            seen_in=trial.prepared.run.id,
            where=f"in {show(path)}",
            encoding=hit.encoding,
            path=path,
        )
    fingerprint = trial.prepared.credentials.keeper.fingerprint(hit.value)
    return trial.record(
        CredentialFound,
        process=process,
        path=path,
        sort=hit.sort,
        line=hit.line,
        fingerprint=fingerprint,
        passed=hit.passed,
    )


# -- what was sent ---------------------------------------------------------------------------------------------------


class Outgoing:
    """Looks for decoys in what the gateway recorded, as the log is read: bytes that were sent, names asked for."""

    def __init__(self, credentials: Credentials) -> None:
        """Know whose decoys there may be."""
        self._credentials = credentials
        self._told: set[tuple[str, int | None]] = set()  # what the gateway found itself, by connection
        self._seen: dict[tuple[str, str, ProcessKey | None], dict[str, Any]] = {}

    def through(self, events: Iterable[Event]) -> Iterator[Event]:
        """Give all events on."""
        for event in events:
            if event.origin is Origin.GATEWAY:
                if isinstance(event, CanaryLeaked):
                    self._told.add((f"{event.placed_by} {event.form}", event.connection))
                elif self.decoys is not None:
                    self._look(event, self.decoys)
            yield event

    @cached_property
    def decoys(self) -> Spotter | None:
        """What finds the decoys of this run and of earlier ones; made when there is something to look at."""
        known = list(self._credentials.known_decoys())
        if not known:
            return None
        from probes.credentials.search import spotter_of  # noqa: PLC0415 - most runs have none

        return spotter_of(known)

    def _look(self, event: Event, decoys: Spotter) -> None:
        for sighting in decoys.spot(b" | ".join(_texts(event))):
            if (sighting.name, getattr(event, "connection", None)) in self._told:
                continue
            run, _, form = sighting.name.partition(" ")
            where = _where(event)
            key = (sighting.name, where, event.process)
            if len(self._seen) < _OUTGOING_MAX:
                found = {"form": form, "placed_by": run, "where": where, "encoding": sighting.encoding.value}
                self._seen.setdefault(key, {"process": event.process, **found})

    def record(self, trial: Trial) -> Iterator[Event]:
        """Record what was seen, once the log was read."""
        for fields in self._seen.values():
            yield trial.record(CanaryLeaked, seen_in=trial.prepared.run.id, **fields)


def _texts(event: Event) -> Iterator[bytes]:
    for name in event.__struct_fields__:
        value = getattr(event, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, bytes):
                yield part
            elif type(part) is str:
                yield part.encode("utf-8", "surrogatepass")


def _where(event: Event) -> str:
    host = next((text for name in ("host", "name", "ip") if (text := getattr(event, name, None))), None)
    if event.kind == "name.asked":
        return f"in the name {host} that was asked"
    port = getattr(event, "port", None)
    return f"sent to {host or 'an unknown address'}" + (f":{port}" if port else "")


def redacted_paths(trial: Trial, paths: Iterable[bytes]) -> dict[bytes, bytes]:
    """Tell which paths the log has under another name, since a credential is in them: from that name to the path."""
    redactor = trial.prepared.credentials.redactor
    if not redactor.met:
        return {}  # no path of the log can be another one than on disk
    clean = ((redactor.redact(path, where=""), path) for path in paths)
    return {name: path for name, path in clean if name is not path}
