"""Writers who are no run, between runs; and one file, or one place, by several names."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from supervisor.evidence.file_facts import ABSENT, Ground, Sight
from supervisor.verdict.runs import pairs
from supervisor.verdict.runs.between import TICK_NS
from supervisor.verdict.runs.findings import Edge
from supervisor.verdict.runs.pairs import separate_pairs
from supervisor.verdict.runs.run_index import Contact, RunIndex, with_sights

S = 10 * TICK_NS
"""One unit of the times below, well above what clocks differ by."""


def sight(path: str, at: float, *, inode: int = 7, names: int = 1, state: str | None = None) -> Sight:
    """What a run saw of a path that was last touched ``at`` a time."""
    when_ns = int(at * S)
    return Sight(path.encode(), 1, inode, names, 3, when_ns, when_ns, ABSENT if not inode else state)


def did(how: str, path: str, at: float, **fields: object) -> Contact:
    """A contact at one moment."""
    when_ns = int(at * S)
    return Contact(path.encode(), how, when_ns, when_ns, (int(at),), **fields)  # type: ignore[arg-type]


def run(
    name: str,
    start: int,
    *contacts: Contact,
    found: tuple[Sight, ...] = (),
    left: tuple[Sight, ...] = (),
    **fields: object,
) -> RunIndex:
    """A run of ten units that shares /s."""
    end_ns = (start + 10) * S
    index = RunIndex(
        run=name,
        contacts=contacts,
        released_ns=start * S,
        ended_ns=end_ns,
        **{"places": (b"/s",), **fields},  # type: ignore[arg-type]
    )
    return with_sights(index, found=found, left=left, left_ns=end_ns, grounds=index.grounds)


def judge(*runs: RunIndex) -> Edge | None:
    """Judge the first two; the way for many gives the same units."""
    many, few = pairs._spanning(pairs._read(runs, lambda: runs)), separate_pairs(runs, lambda: runs)
    assert (many.units, many.most) == (few.units, few.most)
    return next((edge for edge in few.edges if edge.runs == (0, 1)), None)


def rules(*runs: RunIndex) -> tuple[str, set[str]]:
    """Give the verdict about the first two, and the rules that it rests on."""
    edge = judge(*runs)
    return ("separate", set()) if edge is None else (edge.verdict, {reason.rule for reason in edge.reasons})


WROTE = run("a", 0, did("changed", "/s/x", 5), left=(sight("/s/x", 5, inode=8),))


def test_what_somebody_unknown_wrote_after_a_run_changed_the_place_joins_the_run_that_found_it() -> None:
    """It may carry what the first one did; both are told, and what the second one met."""
    edge = judge(WROTE, run("b", 20, did("read", "/s/y", 25), found=(sight("/s/y", 15),)))
    assert edge is not None
    assert (edge.verdict, edge.reasons[0].rule, edge.reasons[0].runs) == ("unresolved", "unknown-writer", (0, 1))
    assert "/s/y" in edge.reasons[0].text
    assert edge.reasons[0].events == ("b:25",)


@pytest.mark.parametrize(
    ("one", "at"),
    [
        (run("a", 0, did("read", "/s/x", 5)), 15),
        (WROTE, 4.8),
        (msgspec.structs.replace(WROTE, places=(b"/elsewhere",)), 15),
        (run("a", 30, did("changed", "/s/x", 35)), 15),
    ],
    ids=["it changed nothing", "written before it did", "not in its place", "it came later"],
)
def test_a_run_that_can_have_had_no_part_in_it_is_not_joined(one: RunIndex, at: float) -> None:
    """An effect is needed, in that place, before."""
    assert rules(one, run("b", 20, did("read", "/s/y", 25), found=(sight("/s/y", at),)))[0] == "separate"


def test_what_another_run_changed_is_not_unknown() -> None:
    """It left the file as it was found; where it did not tell what it left, the time says so."""
    c = run("c", 12, did("changed", "/s/y", 15), left=(sight("/s/y", 15),))
    b = run("b", 30, did("read", "/s/y", 35), found=(sight("/s/y", 15),))
    assert rules(WROTE, b, c)[0] == "separate"
    assert rules(WROTE, b, msgspec.structs.replace(c, left=()))[0] == "separate"


def test_a_change_after_that_of_a_known_run_is_unknown() -> None:
    """Also by its own path: it is not as that run left it."""
    c = run("c", 12, did("changed", "/s/y", 15), left=(sight("/s/y", 15),))
    b = run("b", 30, did("read", "/s/y", 35), found=(sight("/s/y", 25),))
    assert "unknown-writer" in rules(WROTE, b, c)[1]


def test_what_was_put_back_is_told_and_parts_nobody() -> None:
    """The first run had seen the file as the second one found it: only the change time moved."""
    a = run("a", 0, did("read", "/s/y", 2), did("changed", "/s/x", 5), found=(sight("/s/y", -9, state="same"),))
    b = run("b", 20, did("read", "/s/y", 25), found=(sight("/s/y", 15, state="same"),))
    assert rules(a, b) == ("separate", {"put-back-between"})
    other = run("b", 20, did("read", "/s/y", 25), found=(sight("/s/y", 15, state="other"),))
    assert rules(a, other) == ("unresolved", {"unknown-writer"})


def test_a_file_that_took_the_place_of_another_one_is_told_whatever_its_times_say() -> None:
    """An old file was moved there, or something else was mounted."""
    a = run("a", 0, did("read", "/s/y", 2), did("changed", "/s/x", 5), found=(sight("/s/y", -9),))
    b = run("b", 20, did("read", "/s/y", 25), found=(sight("/s/y", -8, inode=9),))
    assert rules(a, b) == ("unresolved", {"unknown-writer"})
    moved = run("c", 12, did("changed", "/s", 15))
    assert "unknown-writer" not in rules(a, b, moved)[1]


def test_what_a_run_left_by_another_name_is_known() -> None:
    """A directory above it was moved by yet another run, and nobody touched the file itself."""
    a = run("a", 0, did("changed", "/s/d/y", 5), left=(sight("/s/d/y", 5),))
    b = run("b", 30, did("read", "/s/e/y", 35), found=(sight("/s/e/y", 5),))
    moved = run("c", 12, did("changed", "/s/d", 15), did("changed", "/s/e", 15))
    assert "unknown-writer" not in rules(a, b, moved)[1]
    own = run("b", 30, did("changed", "/s/e/y", 35), found=(sight("/s/e/y", 5.5),), left=(sight("/s/e/y", 5.5),))
    assert "unknown-writer" in rules(a, own, moved)[1]


def test_a_name_that_is_gone_is_told_by_its_directory() -> None:
    """A look-up in vain meets who took the name away, and so does a listing."""
    a = run("a", 0, did("changed", "/s/x", 5), left=(sight("/s/x", 5, inode=8), sight("/s", 5, inode=2)))
    vain = did("looked", "/s/y", 25, error=2)
    assert rules(a, run("b", 20, vain, found=(sight("/s/y", 15, inode=0),)))[0] == "unresolved"
    assert rules(a, run("b", 20, vain, found=(sight("/s/y", 5, inode=0),)))[0] == "separate"
    listed = run("b", 20, did("listed", "/s/d", 25), found=(sight("/s/d", 15, inode=3),))
    assert rules(a, listed)[0] == "unresolved"


def test_what_a_run_put_back_itself_still_shows_when() -> None:
    """The second one found it as the first one had, but nobody had written it since."""
    before, after = (sight("/s/x", -1),), (sight("/s/x", 5),)
    a = run("a", 0, did("changed", "/s/x", 5, before="one"), found=before, left=after)
    b = run("b", 20, did("read", "/s/x", 25), found=(sight("/s/x", 5, state="one"),))
    assert rules(a, b) == ("connected", {"met-a-change"})
    again = run("b", 20, did("read", "/s/x", 25), found=(sight("/s/x", 15, state="one"),))
    verdict, told = rules(a, again)
    assert verdict == "separate"
    assert "reset-checked" in told


def test_two_names_of_one_file_are_one_resource() -> None:
    """Whoever reads the one has met a change by the other."""
    a = run("a", 0, did("changed", "/s/x", 5), found=(sight("/s/x", -1, names=2),), left=(sight("/s/x", 5, names=2),))
    b = run("b", 20, did("read", "/t/y", 25), found=(sight("/t/y", 5, names=2),), places=(b"/t",))
    assert rules(a, b) == ("connected", {"met-a-change"})
    replaced = msgspec.structs.replace(a, left=(sight("/s/x", 5, inode=8),))
    assert rules(replaced, b)[0] == "separate"
    single = run("b", 20, did("read", "/t/y", 25), found=(sight("/t/y", 5),), places=(b"/t",))
    assert rules(a, single)[0] == "separate"


@pytest.mark.parametrize(
    ("ground", "path", "expected"),
    [
        (Ground(b"/mnt/t", "8:1", b"/s"), "/mnt/t/x", "connected"),
        (Ground(b"/mnt/t", "8:1", b"/s/deep"), "/mnt/t/x", "separate"),
        (Ground(b"/mnt/t", "8:1", b"/"), "/mnt/t/s/x", "connected"),
        (Ground(b"/mnt/t", "8:2", b"/s"), "/mnt/t/x", "separate"),
    ],
)
def test_two_paths_of_one_place_are_one_place(ground: Ground, path: str, expected: str) -> None:
    """A mount shows a directory a second time: a change by the one path is met by the other."""
    a = run("a", 0, did("changed", "/s/x", 5), grounds=(Ground(b"/s", "8:1", b"/s"),))
    b = run("b", 20, did("looked", path, 25, error=2), places=(ground.path,), grounds=(ground,))
    assert rules(a, b)[0] == expected


def test_the_names_of_a_directory_are_not_what_lies_deeper_in_it() -> None:
    """Workspaces side by side: somebody makes the next one, and whoever lists them meets nothing of the first run."""
    deep = did("changed", "/s/1/x", 5)
    one = run("a", 0, deep, places=(b"/s/1",))
    listing = run("b", 20, did("listed", "/s", 25), found=(sight("/s", 15, names=0),), places=(b"/s/2",))
    assert rules(one, listing)[0] == "separate"
    assert rules(msgspec.structs.replace(one, places=(b"/s",)), listing) == ("unresolved", {"unknown-writer"})
    assert rules(msgspec.structs.replace(one, places=(b"/",)), listing) == ("unresolved", {"unknown-writer"})


@pytest.mark.parametrize(("met", "expected"), [("/t/y", "unresolved"), ("/t/z", "separate")])
def test_a_file_outside_of_all_places_may_carry_what_a_run_did_that_met_it_too(met: str, expected: str) -> None:
    """Somebody changed it after that run had changed anything: notes beside the workspaces, as graders read them."""
    one = run("a", 0, did("changed", "/s/1/x", 5), did("read", met, 6), places=(b"/s/1",))
    found = (sight("/t/y", 15),)
    other = run("b", 20, did("read", "/t/y", 25), found=found, places=(b"/s/2",))
    assert rules(one, other)[0] == expected
    assert rules(one, msgspec.structs.replace(other, found=(sight("/t/y", 4),)))[0] == "separate"


@pytest.mark.parametrize(("names", "inode"), [(1, 7), (0, 0)], ids=["a file", "nothing"])
def test_what_took_the_place_of_the_directories_above_may_hold_what_was_in_them(names: int, inode: int) -> None:
    """Only of a directory its names are all that is seen."""
    one = run("a", 0, did("changed", "/s/1/x", 5), places=(b"/s/1",))
    found = (sight("/s", 15, names=names, inode=inode),)
    other = run("b", 20, did("read", "/s", 25), found=found, places=(b"/t",))
    assert rules(one, other) == ("unresolved", {"unknown-writer"})


PATHS = st.sampled_from(["/s", "/s/x", "/s/y", "/s/d/z", "/t/x"])
TIMES = st.integers(0, 60)
SIGHTS = st.builds(
    sight, PATHS, TIMES, inode=st.sampled_from([0, 7, 7, 8]), names=st.sampled_from([0, 1, 1, 2]),
    state=st.sampled_from([None, "one", "two"]),
)  # fmt: skip
CONTACTS = st.builds(did, st.sampled_from(["changed", "read", "listed"]), PATHS, TIMES)
RUNS = st.builds(
    lambda start, contacts, found, left, places: run("r", start, *contacts, found=found, left=left, places=places),
    st.integers(0, 50),
    st.lists(CONTACTS, max_size=3),
    st.lists(SIGHTS, max_size=3).map(tuple),
    st.lists(SIGHTS, max_size=2).map(tuple),
    st.sampled_from([(b"/s",), (b"/t",), (b"/s/d",), (b"/s", b"/t")]),
)


@given(st.lists(RUNS, max_size=7))
def test_many_runs_make_the_units_that_few_runs_make(runs: list[RunIndex]) -> None:
    """Joining each run with the first that it may have come from, and each of those once, leaves nothing out."""
    material = pairs._read(runs, lambda: runs)
    every, spanning = pairs._every_pair(material), pairs._spanning(material)
    assert (spanning.units, spanning.fewest, spanning.most) == (every.units, every.fewest, every.most)
