"""The table of separation, row by row: in either order of the runs, by either way of judging, with a gap or none."""

from __future__ import annotations

import msgspec
import pytest

from supervisor.verdict.runs import pairs
from supervisor.verdict.runs.pairs import separate_pairs
from supervisor.verdict.runs.run_index import Contact, Lock, Mark, RunIndex, Secret, Server, Stream, applied_later

PLACE = (b"/s",)


def run(name: str, start: int, *contacts: Contact, end: int | None = None, **fields: object) -> RunIndex:
    """A run of ten ticks that shares /s."""
    times = {"released_ns": start, "ended_ns": start + 10 if end is None else end}
    return RunIndex(run=name, contacts=contacts, **{"places": PLACE, **times, **fields})  # type: ignore[arg-type]


def did(how: str, at: int, path: str = "/s/x", *, error: int | None = None, **states: str) -> Contact:
    """A contact at one moment; events bear its time."""
    return Contact(path.encode(), how, at, at, (at,), error, states.get("before"), states.get("after"))


def lock(how: str, first: int, last: int, **fields: object) -> Lock:
    """A span of a flock of one file."""
    return Lock(b"/s/lock", 1, 2, "flock", how, first, last, (first,), **fields)  # type: ignore[arg-type]


def given(how: str, at: int, path: str = "/s/x", **states: str) -> Contact:
    """A contact by a standard stream that was given, for as long as the run lasts."""
    return Contact(path.encode(), how, at, at + 10, (at,), None, states.get("before"), times=(0, 0), given=True)


def stream(what: str, does: str, path: str = "pipe:[9]", inode: int = 9, **fields: object) -> Stream:
    """A standard stream, ``r`` to read from and ``w`` to write to; its event is number 3."""
    named, born_ns = path.startswith("/"), 5 if what == "file" else 0
    common = (0, what, path.encode(), named, 1, inode, born_ns, "r" in does, "w" in does)
    return Stream(*common, events=(3,), **fields)  # type: ignore[arg-type]


def held(name: str, start: int, *streams: Stream, **fields: object) -> RunIndex:
    """A run that was given these streams."""
    return run(name, start, streams=streams, **{"boot": "one", **fields})  # type: ignore[arg-type]


def served(at: int, state: str | None, address: str = "127.0.0.1:1") -> Server:
    """A server that was reached."""
    return Server(address, "api.test:80", state, at, at, (at,))


WROTE = run("a", 0, did("changed", 5, before="one", after="two"))
WANT = (Mark("timeout", "its time ran out", (9,)),)
LATER = (Mark("acts-later", "a crontab", (4,), "schedule"),)

CONNECTED = {
    "read": (WROTE, run("b", 20, did("read", 25))),
    "executed": (WROTE, run("b", 20, did("executed", 25))),
    "mapped": (WROTE, run("b", 20, did("mapped", 25))),
    "looked up": (WROTE, run("b", 20, did("looked", 25))),
    "looked up in vain, after it was deleted": (WROTE, run("b", 20, did("looked", 25, error=2))),
    "listed": (WROTE, run("b", 20, did("listed", 25, "/s"))),
    "met while both ran": (WROTE, run("b", 3, did("read", 6))),
    "both change it": (WROTE, run("b", 20, did("changed", 25))),
    "both change it, by turns": (
        run("a", 0, Contact(b"/s/x", "changed", 2, 9, (2,))),
        run("b", 1, Contact(b"/s/x", "changed", 3, 8, (3,))),
    ),
    "refused a lock": (run("a", 0, locks=(lock("held", 1, 9),)), run("b", 2, locks=(lock("refused", 5, 5),))),
    "waited for a lock": (run("a", 0, locks=(lock("held", 1, 9),)), run("b", 0, locks=(lock("waited", 3, 9),))),
    "asked about a lock": (run("a", 0, locks=(lock("held", 1, 9),)), run("b", 0, locks=(lock("asked", 3, 3),))),
    "refused the name of a socket": (
        run("a", 0, did("changed", 2, "/s/socket")),
        run("b", 1, did("looked", 5, "/s/socket", error=98)),
    ),
    "a fifo": (run("a", 0, Contact(b"/s/f", "changed", 2, 9, (2,))), run("b", 1, Contact(b"/s/f", "read", 1, 9, (1,)))),
    "reset while it ran": (WROTE, run("b", 8, did("changed", 12, before="one"))),
    "reset to something else": (WROTE, run("b", 20, did("changed", 25, before="two"))),
    "a committed workspace, met": (
        run("a", 0, did("changed", 10, "/w/x"), workspace=b"/w"),
        run("b", 20, did("read", 25, "/w/x"), workspace=b"/w"),
    ),
    "a credential": (
        run("a", 0, secrets=(Secret("f", "token", "created", (3,)),)),
        run("b", 20, secrets=(Secret("f", "token", "used", (4,)),)),
    ),
    "a decoy that came back": (
        run("a", 0, secrets=(Secret("canary a", "canary", "created", (3,)),)),
        run("b", 20, secrets=(Secret("canary a", "canary ssh", "leaked", (4,)),)),
    ),
    "given what was written": (WROTE, run("b", 20, given("read", 20))),
    "read what it was given to write to": (run("a", 0, given("changed", 0)), run("b", 20, did("read", 25))),
    "looked up what it was given to write to": (run("a", 0, given("changed", 0)), run("b", 20, did("looked", 25))),
    "one output, the other's input": (run("a", 0, given("changed", 0)), run("b", 20, given("read", 20))),
    "one output, the other's input, while both ran": (run("a", 5, given("changed", 5)), run("b", 0, given("read", 0))),
    "one log for both, which one can read": (
        run("a", 0, given("changed", 0)),
        run("b", 20, given("changed", 20), given("read", 20)),
    ),
    "one log for both, and one opened it by its name": (
        run("a", 0, given("changed", 0)),
        run("b", 20, did("changed", 25)),
    ),
    "a pipe from one to the other": (held("a", 0, stream("fifo", "w")), held("b", 3, stream("fifo", "r"))),
    "a pipe from one to the other, which began later": (
        held("a", 0, stream("fifo", "w")),
        held("b", 20, stream("fifo", "r")),
    ),
    "an output that got another name before it was the other's input": (
        held("a", 0, stream("file", "w", "/s/x")),
        held("b", 20, stream("file", "r", "/s/y"), boot="two"),
    ),
    "an output that lost its name before it was the other's input": (
        held("a", 0, stream("file", "w", "/s/x")),
        held("b", 20, stream("file", "r", "(deleted)")),
    ),
    "one stream": (run("a", 0, unit="stream:s"), run("b", 20, unit="stream:s")),
    "a declared dependence": (run("a", 0), run("b", 20, depends_on=("a",))),
    "two that depend on a third": (run("a", 0, depends_on=("c",)), run("b", 20, depends_on=("c",))),
}

UNRESOLVED = {
    "a committed workspace, not met": (
        run("a", 0, did("changed", 10, "/w/x"), workspace=b"/w"),
        run("b", 20, workspace=b"/w"),
    ),
    "a lock elsewhere, perhaps held": (
        run("a", 0, locks=(lock("held", 1, 9, exact=False),)),
        run("b", 0, locks=(lock("refused", 3, 3),)),
    ),
    "a lock that somebody unknown held": (run("a", 0), run("b", 0, locks=(lock("refused", 3, 3),))),
    "one pipe that both can read from": (held("a", 0, stream("fifo", "r")), held("b", 20, stream("fifo", "r"))),
    "one fifo that both can read from, and the later one can write to": (
        held("a", 20, stream("fifo", "rw")),
        held("b", 0, stream("fifo", "r")),
    ),
    "one socket that both can read from": (held("a", 0, stream("socket", "rw")), held("b", 20, stream("socket", "rw"))),
    "reading on where the other may have stopped": (
        held("a", 0, stream("file", "r", "/s/x", start=0, reached=4)),
        held("b", 20, stream("file", "r", "/s/x", start=4, reached=4)),
    ),
    "an output in a workspace in which the other works": (
        run("a", 0, given("changed", 0, "/w/log")),
        run("b", 20, workspace=b"/w"),
    ),
    "a gap of who may have opened anew what both were given": (
        held("a", 0, stream("fifo", "w"), places=(), gaps=(Mark("lost-events", "3 events are missing", (4,), "file"),)),
        held("b", 20, stream("fifo", "w"), places=()),
    ),
    "a service": (run("a", 0, servers=(served(1, "shared"),)), run("b", 20, servers=(served(21, "shared"),))),
    "a service that one does not declare": (
        run("a", 0, servers=(served(1, "stateless"),)),
        run("b", 20, servers=(served(21, None),)),
    ),
    "one server for two that declare their own": (
        run("a", 0, servers=(served(1, "per-run"),)),
        run("b", 20, servers=(served(21, "per-run"),)),
    ),
    "contention": (run("a", 0), run("b", 5, contention=WANT)),
    "a schedule that stays": (run("a", 0, later=LATER), run("b", 20)),
    "a run without proof": (run("a", 0, problem="it was never sealed"), run("b", 20)),
    "a gap on a place of both": (
        run("a", 0, gaps=(Mark("lost-events", "3 events are missing", (4,), "file"),)),
        run("b", 20),
    ),
    "a gap on a place that the other met without sharing it": (
        run("a", 0, gaps=(Mark("lost-events", "3 events are missing", (4,), "file"),)),
        run("b", 20, did("read", 25, "/s/d/y"), places=()),
    ),
    "somebody who is no run": (
        run("a", 0, gaps=(Mark("foreign-writer", "somebody else changed it", (4,), "file"),)),
        run("b", 20),
    ),
}

SEPARATE = {
    "met before it changed": (run("a", 0, did("read", 5)), run("b", 20, did("changed", 25))),
    "the same input": (run("a", 0, did("read", 5)), run("b", 20, did("read", 25))),
    "one log for both": (run("a", 0, given("changed", 0)), run("b", 20, given("changed", 20))),
    "one input for both": (run("a", 0, given("read", 0)), run("b", 20, given("read", 20))),
    "an output in a directory that the other listed": (
        run("a", 0, given("changed", 0)),
        run("b", 20, did("listed", 25, "/s")),
    ),
    "an output that was the other's input before": (
        run("a", 20, given("changed", 20)),
        run("b", 0, given("read", 0)),
    ),
    "an output that was put back before it was the other's input": (
        run("a", 0, given("changed", 0, before="one")),
        run("b", 20, given("read", 20, before="one")),
    ),
    "one pipe that both write to": (held("a", 0, stream("fifo", "w")), held("b", 3, stream("fifo", "w"))),
    "a pipe each": (held("a", 0, stream("fifo", "w")), held("b", 3, stream("fifo", "r", inode=8))),
    "pipes of one number, before and after a boot": (
        held("a", 0, stream("fifo", "w")),
        held("b", 20, stream("fifo", "r"), boot="two"),
    ),
    "a pipe that was read before the other began": (
        held("a", 20, stream("fifo", "w")),
        held("b", 0, stream("fifo", "r")),
    ),
    "one pipe that was at its end": (
        held("a", 0, stream("fifo", "r", ended=True)),
        held("b", 20, stream("fifo", "r", ended=True)),
    ),
    "reading on where nobody had read": (
        held("a", 0, stream("file", "r", "/s/x", start=4, reached=4)),
        held("b", 20, stream("file", "r", "/s/x", start=4, reached=9)),
    ),
    "reading from the beginning": (
        held("a", 0, stream("file", "r", "/s/x", start=0, reached=9)),
        held("b", 20, stream("file", "r", "/s/x", start=0, reached=9)),
    ),
    "beside it": (WROTE, run("b", 20, did("read", 25, "/s/xx"))),
    "reset, checked": (WROTE, run("b", 20, did("changed", 25, before="one"))),
    "a lock that was given back": (
        run("a", 0, locks=(lock("held", 1, 3),)),
        run("b", 0, locks=(lock("held", 4, 6), lock("asked", 5, 5))),
    ),
    "another sort of lock": (
        run("a", 0, locks=(lock("held", 1, 9),)),
        run("b", 20, locks=(msgspec.structs.replace(lock("refused", 25, 25, own=True), sort="record"),)),
    ),
    "a lock that only its own trial held": (run("a", 0), run("b", 0, locks=(lock("refused", 3, 3, own=True),))),
    "a service without state": (
        run("a", 0, servers=(served(1, "stateless"),)),
        run("b", 20, servers=(served(21, "stateless"),)),
    ),
    "a service for each": (
        run("a", 0, servers=(served(1, "per-run"),)),
        run("b", 20, servers=(served(21, "per-run", "127.0.0.1:2"),)),
    ),
    "want, but one after the other": (run("a", 0, contention=WANT), run("b", 20)),
    "one secret that was given to both": (
        run("a", 0, secrets=(Secret("f", "KEY", "passed", (1,)),)),
        run("b", 20, secrets=(Secret("f", "KEY", "passed", (1,)),)),
    ),
    "a decoy for each": (
        run("a", 0, secrets=(Secret("canary a", "canary", "created", (3,)),)),
        run("b", 20, secrets=(Secret("canary b", "canary", "created", (3,)),)),
    ),
    "a declared dependence on another run": (run("a", 0), run("b", 20, depends_on=("c",))),
    "two streams": (run("a", 0, unit="stream:s"), run("b", 20, unit="stream:t")),
    "a schedule that began after the other ended": (run("a", 0), run("b", 20, later=LATER)),
}

ROWS = [
    pytest.param(*row, verdict, id=f"{verdict}: {name}")
    for verdict, rows in (("connected", CONNECTED), ("unresolved", UNRESOLVED), ("separate", SEPARATE))
    for name, row in rows.items()
]
_RANK = {"separate": 0, "unresolved": 1, "connected": 2}


def judge(*runs: RunIndex) -> str:
    """Give the verdict of a pair; no edge is separate."""
    return next((edge.verdict for edge in separate_pairs(runs, lambda: runs).edges), "separate")


@pytest.mark.parametrize(("one", "other", "expected"), ROWS)
def test_the_verdict_is_that_of_the_row(one: RunIndex, other: RunIndex, expected: str) -> None:
    """Whichever run is named first; and what joins makes one unit."""
    assert judge(one, other) == expected
    assert judge(other, one) == expected
    found = separate_pairs((one, other), lambda: (one, other))
    assert len(found.units) == (2 if expected == "separate" else 1)
    assert (found.fewest, found.most) == (len(found.units), 1 if expected == "connected" else 2)


@pytest.mark.parametrize(("one", "other", "expected"), ROWS)
def test_a_joining_verdict_cites_both_sides_or_says_why_not(one: RunIndex, other: RunIndex, expected: str) -> None:
    """A meeting has an effect and whoever met it; a declaration and a missing run have no events."""
    (edge,) = separate_pairs((one, other), lambda: (one, other)).edges or (None,)
    if edge is None or expected == "separate":
        return
    for reason in edge.reasons:
        sides = {event.partition(":")[0] for event in reason.events}
        if reason.rule in {
            "met-a-change",
            "met-a-stream",
            "read-on",
            "met-a-lock",
            "credential-met",
            "service-shared",
            "service-not-per-run",
        }:
            assert sides == {"a", "b"}
        else:
            assert reason.text


@pytest.mark.parametrize(("one", "other", "expected"), ROWS)
def test_many_runs_are_judged_as_two_are(one: RunIndex, other: RunIndex, expected: str) -> None:
    """The way for many gives the same units and the same bounds."""
    runs = (one, other)
    found = pairs._spanning(pairs._read(runs, lambda: runs))
    assert len(found.units) == (2 if expected == "separate" else 1)
    assert found.most == (1 if expected == "connected" else 2)


@pytest.mark.parametrize("gap_in", [0, 1])
@pytest.mark.parametrize("route", ["file", "process"])
@pytest.mark.parametrize(("one", "other", "expected"), ROWS)
def test_a_gap_never_makes_a_verdict_better(
    one: RunIndex, other: RunIndex, expected: str, route: str, gap_in: int
) -> None:
    """What is missing on a route that both share is unresolved at least; what was seen stays seen."""
    runs = [one, other]
    gap = Mark("lost-events", "3 events are missing", (7,), route)
    runs[gap_in] = msgspec.structs.replace(runs[gap_in], gaps=(*runs[gap_in].gaps, gap))
    assert _RANK[judge(*runs)] == max(_RANK[expected], _RANK["unresolved"])


@pytest.mark.parametrize(("one", "other", "expected"), ROWS)
def test_a_third_run_that_shares_nothing_changes_nothing(one: RunIndex, other: RunIndex, expected: str) -> None:
    """A run long before, elsewhere."""
    third = RunIndex(run="c", released_ns=-100, ended_ns=-90, places=(b"/elsewhere",))
    found = separate_pairs((one, other, third), lambda: (one, other, third))
    between = [edge.verdict for edge in found.edges if edge.runs == (0, 1)]
    assert (between or ["separate"]) == [expected]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (run("b", 40, did("read", 45, "/s/y")), "connected"),
        (run("b", 40, servers=(served(41, "shared"),)), "unresolved"),
    ],
)
def test_through_a_third_run_the_weakest_step_counts(end: RunIndex, expected: str) -> None:
    """The run in the middle is named."""
    middle = run("m", 20, did("read", 25), did("changed", 26, "/s/y"), servers=(served(25, "shared"),))
    runs = (WROTE, middle, end)
    (edge,) = (edge for edge in separate_pairs(runs, lambda: runs).edges if edge.runs == (0, 2))
    assert (edge.verdict, edge.via) == (expected, (1,))


def test_a_stage_that_is_applied_later_changes_from_then_on() -> None:
    """Until then it is nobody's contact, and a reset before it proves nothing."""
    kept = run("a", 0, staged=(did("changed", 5, before="one", after="two"),))
    before, after = run("b", 20, did("read", 25)), run("b", 70, did("read", 75))
    meanwhile = run("b", 40, did("changed", 55, before="one"), end=60)
    assert judge(kept, after) == "separate"
    applied = applied_later(kept, 50, 51)
    assert judge(applied, before) == "separate"
    assert judge(applied, after) == "connected"
    assert judge(applied, meanwhile) == "connected"
    assert judge(applied, run("b", 70, did("changed", 75, before="one"))) == "separate"


def test_a_gap_reaches_whoever_was_given_the_same_thing_only() -> None:
    """What may have been opened anew lies in no place of theirs; a pipe of its own has nothing to do with it."""
    blind, beside = UNRESOLVED["a gap of who may have opened anew what both were given"]
    elsewhere = msgspec.structs.replace(beside, streams=(stream("fifo", "w", "pipe:[8]", 8),))
    assert (judge(blind, beside), judge(blind, elsewhere)) == ("unresolved", "separate")


def test_declared_words_are_assumptions() -> None:
    """Separate on the word of a policy says so."""
    one, other = SEPARATE["a service without state"]
    (edge,) = separate_pairs((one, other), lambda: (one, other)).edges
    assert edge.assumptions == ["api.test:80 is stateless, as declared; nobody witnessed it"]


def test_a_lock_of_a_named_run_is_no_contention_with_others() -> None:
    """Who held it is known: whoever only ran at the same time has nothing to do with it."""
    holder, waiter = CONNECTED["waited for a lock"]
    runs = (holder, waiter, run("c", 0))
    assert separate_pairs(runs, lambda: runs).units == [[0, 1], [2]]
    assert separate_pairs(runs[1:], lambda: runs[1:]).units == [[0, 1]]
