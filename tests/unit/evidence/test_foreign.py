"""Whose doing a change of a shared place was: what the watch saw against what the trial did."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from transcript import MS, Transcript

from supervisor import events as ev
from supervisor.events.places import Sighting
from supervisor.evidence.paths.foreign import SLACK_NS, find_foreign

PLACE = b"/srv/shared"
PATH = PLACE + b"/f"


def sight(change: str, at_ns: int, path: bytes = PATH) -> Sighting:
    """See a change a millisecond after it happened, at the latest."""
    return Sighting(path=path, change=change, since_ns=at_ns - MS, seen_ns=at_ns + MS)


def trial() -> Transcript:
    """Give a trial that runs."""
    told = Transcript()
    told.begin()
    return told


@pytest.mark.parametrize(
    ("kind", "fields", "changes"),
    [
        (ev.FileOpened, {"reads": False, "writes": True, "created": True}, ["created"]),
        (ev.FileOpened, {"reads": False, "writes": True, "truncates": True}, ["modified"]),
        (ev.FileWritten, {"count": 1, "size_bytes": 1, "last_ns": 0}, ["modified", "attributes"]),
        (ev.FileDeleted, {}, ["deleted"]),
        (ev.FileCreated, {"what": ev.Kind.DIRECTORY}, ["created"]),
        (ev.FileTruncated, {"size_bytes": 0}, ["modified"]),
        (ev.FileChanged, {"attribute": "times"}, ["attributes", "modified"]),
        (ev.FileRenamed, {"new_path": b"/elsewhere"}, ["moved"]),
    ],
)
def test_what_the_trial_did_is_its_own(kind: type[ev.Event], fields: dict[str, object], changes: list[str]) -> None:
    """Each change is explained by the event of the call that made it."""
    told = trial()
    event = told.file(kind, PATH, **fields)
    assert find_foreign([sight(change, event.time_ns) for change in changes], told.events) == []


@pytest.mark.parametrize(
    ("kind", "fields", "path"),
    [
        (ev.FileOpened, {"reads": True, "writes": True}, PATH),
        (ev.FileWritten, {"count": 1, "size_bytes": 1, "last_ns": 0}, PATH),
        (ev.FileMapped, {"size_bytes": 1}, PATH),
        (ev.FileRenamed, {"new_path": b"/elsewhere"}, b"/elsewhere"),
    ],
)
def test_what_the_trial_had_open_for_writing_it_may_close_at_any_time(
    kind: type[ev.Event], fields: dict[str, object], path: bytes
) -> None:
    """Under the name that the file has then; before it was opened, it was somebody else."""
    told = trial()
    event = told.file(kind, PATH, **fields)
    assert find_foreign([sight("closed", event.time_ns + 100 * SLACK_NS, path)], told.events) == []
    earlier = [sight("closed", event.time_ns - 2 * SLACK_NS, path)]
    assert find_foreign(earlier, told.events) == earlier


def test_what_is_only_read_is_closed_by_somebody_else() -> None:
    """The trial cannot have written what it had open for reading."""
    told = trial()
    event = told.file(ev.FileOpened, PATH, reads=True, writes=False)
    seen = [sight("closed", event.time_ns)]
    assert find_foreign(seen, told.events) == seen


def test_another_way_another_time_and_another_path_are_somebody_elses() -> None:
    """The trial wrote the file: that explains no deletion, no earlier write, and no neighbour's."""
    told = trial()
    event = told.file(ev.FileWritten, PATH, count=1, size_bytes=1, last_ns=0)
    others = [
        sight("deleted", event.time_ns),
        sight("modified", event.time_ns - 2 * SLACK_NS),
        sight("modified", event.time_ns + 2 * SLACK_NS),
        sight("modified", event.time_ns, PATH + b"2"),
    ]
    assert find_foreign(others, told.events) == others


def test_failed_and_reading_calls_explain_nothing() -> None:
    """What was refused changed nothing, and neither did an open."""
    told = trial()
    told.delete(PATH, error=13)
    event = told.file(ev.FileOpened, PATH, reads=True, writes=True)
    assert len(find_foreign([sight("deleted", event.time_ns), sight("modified", event.time_ns)], told.events)) == 2


def test_writes_that_are_only_counted_explain_the_whole_span() -> None:
    """From the first write, which was told, to the last, which the totals tell."""
    told = trial()
    first = told.file(ev.FileWritten, PATH, count=1, size_bytes=1, last_ns=0, device=1, inode=2)
    last_ns = first.time_ns + 20 * SLACK_NS
    told.add(ev.FileWritten, path=b"", device=1, inode=2, count=9, size_bytes=9, last_ns=last_ns, totals=True)
    seen = [sight("modified", first.time_ns + step * SLACK_NS) for step in (0, 5, 20, 22)]
    assert find_foreign(seen, told.events) == seen[3:]


def test_a_mapping_explains_writes_for_ever() -> None:
    """Stores into a mapping are not told: whatever is written later may be one."""
    told = trial()
    event = told.file(ev.FileMapped, PATH, size_bytes=1)
    assert find_foreign([sight("modified", event.time_ns + 100 * SLACK_NS)], told.events) == []


def test_a_name_through_a_link_or_another_mount_explains_what_it_led_to() -> None:
    """The watch sees the place's own name: the trial may have used another one."""
    told = Transcript()
    told.add(ev.PlaceDeclared, process=None, path=PLACE, names=(b"/data",))
    told.begin()
    one = told.delete(b"/home/me/link/f")
    two = told.file(ev.FileWritten, b"/data/f", count=1, size_bytes=1, last_ns=0, inode=3)
    assert find_foreign([sight("deleted", one.time_ns), sight("modified", two.time_ns)], told.events) == []


def test_both_names_of_a_link_and_of_a_rename_are_explained() -> None:
    """A hard link makes its new name, a rename moves both."""
    told = trial()
    linked = told.file(ev.FileLinked, b"/elsewhere", new_path=PATH)
    moved = told.rename(PATH, PLACE + b"/g")
    seen = [
        sight("created", linked.time_ns),
        sight("moved", moved.time_ns),
        sight("moved", moved.time_ns, PLACE + b"/g"),
    ]
    assert find_foreign(seen, told.events) == []


WRITTEN = {"count": 1, "size_bytes": 1, "last_ns": 0, "inode": 4, "device": 1}


def unexplained(
    told: Transcript, *changes: tuple[str, bytes], host: Mapping[bytes, bytes] | None = None
) -> list[bytes]:
    """See changes long after the last event; give the paths of those that are somebody else's."""
    links = host or {}
    sights = [sight(change, told.now_ns + 10 * SLACK_NS, path) for change, path in changes]
    found = find_foreign(sights, told.events, lambda paths: {path: links[path] for path in paths if path in links})
    return [one.path for one in found]


def test_what_was_open_for_writing_is_closed_under_the_name_that_its_directory_has_then() -> None:
    """A directory was renamed meanwhile; a file of that name that was not in it is somebody else's to close."""
    told = trial()
    told.file(ev.FileOpened, PLACE + b"/d/f", reads=False, writes=True, inode=4)
    told.rename(PLACE + b"/d", PLACE + b"/e")
    own, other = PLACE + b"/e/f", PLACE + b"/other/f"
    assert unexplained(told, ("closed", own), ("closed", other)) == [other]


def test_totals_are_of_the_file_under_every_name_that_it_got() -> None:
    """They tell the last of many writes, by the file that the first one was to."""
    told = trial()
    told.file(ev.FileWritten, PLACE + b"/f", **WRITTEN)
    told.rename(PLACE + b"/f", PLACE + b"/g")
    told.now_ns += 10 * SLACK_NS
    told.add(ev.FileWritten, path=b"", totals=True, **{**WRITTEN, "last_ns": told.now_ns + 20 * SLACK_NS})
    assert unexplained(told, ("modified", PLACE + b"/g"), ("modified", PLACE + b"/h")) == [PLACE + b"/h"]


@pytest.mark.parametrize("same", [True, False])
def test_totals_are_of_whatever_was_written_first(*, same: bool) -> None:
    """A later write to the file by another name, of the same process or another one, takes nothing away from it."""
    told = trial()
    first = told.file(ev.FileWritten, PLACE + b"/one", **WRITTEN)
    told.now_ns += 10 * SLACK_NS
    told.file(ev.FileWritten, PLACE + b"/two", **({} if same else {"process": told.fork()}), **WRITTEN)
    told.add(ev.FileWritten, path=b"", totals=True, **{**WRITTEN, "last_ns": first.time_ns + 5 * SLACK_NS})
    assert find_foreign([sight("modified", first.time_ns + 4 * SLACK_NS, PLACE + b"/one")], told.events) == []


def test_what_a_renamed_directory_brought_came_with_it() -> None:
    """The watch finds it in a directory that is new there, and sees it as created."""
    told = trial()
    event = told.rename(PLACE + b"/d", PLACE + b"/new/e")
    sights = [sight("created", event.time_ns, PLACE + name) for name in (b"/new/e/x", b"/new/y")]
    assert [one.path for one in find_foreign(sights, told.events)] == [PLACE + b"/new/y"]


def test_what_was_changed_by_the_name_of_a_symlink_is_its_target() -> None:
    """Its last part is another one than that of the path that changed."""
    told = trial()
    told.file(ev.FileLinked, b"made", new_path=PLACE + b"/link", symbolic=True)
    for name in (b"/link", b"/old"):
        event = told.file(ev.FileChanged, PLACE + name, attribute="mode")
    sights = [sight("attributes", event.time_ns, PLACE + name) for name in (b"/made", b"/host", b"/neither")]
    links = {PLACE + b"/old": b"host"}
    found = find_foreign(sights, told.events, lambda paths: {path: links[path] for path in paths if path in links})
    assert [one.path for one in found] == [PLACE + b"/neither"]
